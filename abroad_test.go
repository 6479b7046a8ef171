package weir

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	countsync "github.com/weir-go/weir/sync"
)

// stranger is a node of another region that asks what it likes, and answers nothing.
type stranger struct{}

func (stranger) Changed()                          {}
func (stranger) Heard()                            {}
func (stranger) Late(cluster.Peer, []byte, []byte) {}
func (stranger) Serve(b *cluster.Batch) {
	for i := range b.Requests {
		b.Reply(i, nil)
	}
}

// A region lets others ask for units, and have counts reset that are Global. Nothing
// else that its own members say to each other is theirs to say: they do not share
// its counts, nor what it has published.
func TestOtherRegionsMayExchangeAndResetAndNoMore(t *testing.T) {
	n := fleet(t, 1, func(_ int, cfg *Config) {
		cfg.Region = "near"
		cfg.Regions = map[string][]string{"far": {"127.0.0.1:1"}, "third": {"127.0.0.1:1"}}
	})[0]
	l := limiter(t, n, Limit{Name: "calls", Rate: 10, Per: time.Hour})
	far := cluster.NewGossip(cluster.Config{
		Name: "stranger-1", Bind: "127.0.0.1:0", Region: "far", Regions: map[string][]string{"near": {n.view.Load().Members[0].Addr}},
		Seed: n.identity.fingerprint(), Logger: quiet,
	})
	require.NoError(t, far.Start(t.Context(), stranger{}))
	t.Cleanup(func() { require.NoError(t, far.Close()) })

	key := n.identity.id(l.prefix, "key")
	numbers := bucket.Limit{Rate: 10, Per: time.Hour}
	one := func(o op, units int64) []byte {
		a := ask{id: key, limit: &numbers, units: units}
		return a.append(header{op: o, asks: 1}.append(nil))
	}
	with := func(o op, body []byte) []byte { return append(header{op: o}.append(nil), body...) }
	frame := []byte{3, 0}                                                               // version, flags
	for _, number := range []uint64{nameHash("member-1"), n.view.Load().hashes[0], 1} { // from, to, number
		frame = binary.LittleEndian.AppendUint64(frame, number)
	}
	frame = append(frame, 0) // items
	declared := Limit{Name: "calls", Rate: 99, Per: time.Hour}
	speaking := func(region string) []byte {
		return with(opExchange, (&countsync.Exchange{Region: region}).Append(nil))
	}
	abroad := func(request []byte) []byte {
		answer, err := far.Region("near").Ask(t.Context(), request, nil, 5*time.Second)
		require.NoError(t, err)
		return answer
	}
	require.Eventually(t, func() bool {
		_, err := far.Region("near").Ask(t.Context(), speaking("far"), nil, time.Second)
		return err == nil
	}, 10*time.Second, 5*time.Millisecond)

	cases := []struct {
		op      op
		request []byte
		crosses bool
	}{
		{opTake, one(opTake, 3), false},
		{opDebit, one(opDebit, 3), false},
		{opRefund, one(opRefund, 3), false},
		{opPeek, one(opPeek, 1), false},
		{opReset, one(opReset, 0), true},
		{opStream, with(opStream, frame), false},
		{opPublish, with(opPublish, appendPostings(nil, []posting{{Published: Published{Name: "a", Version: 1, Value: []byte("b")}}}, n.now())), false},
		{opCompare, with(opCompare, (&comparison{}).append(nil)), false},
		{opExchange, speaking("far"), true},
		{opDeclare, with(opDeclare, declared.append(nil)), false},
		{opLocate, with(opLocate, appendHashes(make([]byte, 8), countsync.All())), false},
	}
	require.Len(t, cases, int(opLocate), "every op")
	for i, c := range cases {
		require.EqualValues(t, i+1, c.op)
		if answer := abroad(c.request); c.crosses {
			require.NotEmpty(t, answer, "op %d", c.op)
		} else {
			require.Empty(t, answer, "op %d", c.op)
		}
		d, err := l.Peek(t.Context(), "key")
		require.NoError(t, err)
		require.EqualValues(t, 10, d.Remaining, "op %d", c.op)
	}
	require.Empty(t, abroad(speaking("third")), "a region speaks for itself alone")
	published, _ := n.Published("")
	require.Empty(t, published)
	require.Zero(t, n.Stats().Conflicts)

	for _, c := range cases { // which mean something, to who may
		got := make(chan []byte, 1)
		b := cluster.NewBatch("member-1", within(got))
		b.Region, b.Requests = "near", [][]byte{c.request}
		inbound{n}.Serve(b)
		require.NotEmpty(t, <-got, "op %d", c.op)
	}
	published, _ = n.Published("")
	require.Len(t, published, 1)
	require.EqualValues(t, 1, n.Stats().Conflicts)
}

// within takes one answer.
type within chan<- []byte

func (w within) Reply(_ int, body []byte) { w <- append([]byte(nil), body...) }

func (w within) Later(int) cluster.Later { return func(body []byte) { w.Reply(0, body) } }
