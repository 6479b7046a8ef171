package weir

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
)

func TestWhatIsSentIsWhatArrives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := bucket.Limit{
			Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
			Rate:      rapid.Int64Range(1, 100_000).Draw(t, "rate"),
			Per:       time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "per")),
			Version:   rapid.Uint64().Draw(t, "version"),
		}
		if limit.Algorithm == TokenBucket || limit.Algorithm == LeakyBucket {
			limit.Burst = rapid.Int64Range(0, 100_000).Draw(t, "burst")
		}
		if limit.Algorithm == FixedWindow {
			limit.Start = rapid.Int64Range(-1<<62, 1<<62).Draw(t, "start")
		}
		h := header{
			op: op(rapid.IntRange(int(opTake), int(opReset)).Draw(t, "op")), flags: rapid.Byte().Draw(t, "flags"),
			hops: rapid.ByteRange(0, maxHops).Draw(t, "hops"), asks: rapid.ByteRange(1, 5).Draw(t, "asks"),
			wait: time.Duration(rapid.Uint32().Draw(t, "wait")) * time.Microsecond, to: rapid.Uint64().Draw(t, "to"),
		}
		request := h.append(nil)
		var asks []ask
		for range h.asks {
			a := ask{
				id:    bucket.ID{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")},
				limit: &limit, partition: PartitionPolicy(rapid.IntRange(0, int(FailClosed)).Draw(t, "partition")),
				shadow: rapid.Bool().Draw(t, "shadow"), units: rapid.Int64Range(0, 1<<62).Draw(t, "units"), receipt: bucket.Receipt(rapid.Int64().Draw(t, "receipt")),
				stoodIn: rapid.Bool().Draw(t, "granted without authority"),
			}
			asks = append(asks, a)
			request = a.append(request)
		}
		got, err := parseHeader(request)
		if err != nil || got != h {
			t.Fatalf("%+v came as %+v, %v", h, got, err)
		}
		for i := range asks {
			var numbers bucket.Limit
			a, err := parseAsk(request, i, &numbers)
			if err != nil || numbers != limit || idOf(request, i) != asks[i].id {
				t.Fatalf("%+v came as %+v, %v", limit, numbers, err)
			}
			a.limit = &limit
			if a != asks[i] {
				t.Fatalf("%+v came as %+v", asks[i], a)
			}
		}

		answer := appendAnswer(nil, statusDone, len(asks))
		var results []result
		for range asks {
			positive := rapid.Int64Range(1, 1<<62)
			r := result{bucket.Result{
				Allowed: rapid.Bool().Draw(t, "allowed"), Limit: positive.Draw(t, "limit"), Remaining: positive.Draw(t, "remaining"),
				RetryAfter: time.Duration(positive.Draw(t, "retry")), ResetAfter: time.Duration(positive.Draw(t, "reset")),
				Receipt: bucket.Receipt(rapid.Int64().Draw(t, "receipt")),
			}, Source(rapid.IntRange(1, int(sources)-1).Draw(t, "source")), rapid.Bool().Draw(t, "without authority"), false}
			r.firm = !r.Allowed && rapid.Bool().Draw(t, "firm")
			results = append(results, r)
			answer = r.append(answer)
		}
		if s, err := parseAnswer(answer, len(asks)); err != nil || s != statusDone {
			t.Fatal(s, err)
		}
		for i := range results {
			if r := parseResult(answer, i); r != results[i] {
				t.Fatalf("%+v came as %+v", results[i], r)
			}
		}
	})
}

// Whatever a member answers, it is a decision that can be counted and waited for.
func FuzzAnswer(f *testing.F) {
	for _, source := range []Source{0, Owner, FailedClosed, sources, 255} {
		r := result{bucket.Result{Limit: -1, Remaining: -5, RetryAfter: -7, ResetAfter: -9}, source, false, source == Owner}
		f.Add(r.append(appendAnswer(nil, statusDone, 1)))
	}
	var m meters
	f.Fuzz(func(t *testing.T, answer []byte) {
		if s, err := parseAnswer(answer, 1); err != nil || s != statusDone {
			return
		}
		r := parseResult(answer, 0)
		m.decided(bucket.ID{}, &r, false)
		require.GreaterOrEqual(t, min(r.Limit, r.Remaining, int64(r.RetryAfter), int64(r.ResetAfter)), int64(0))
		require.True(t, r.Allowed || r.RetryAfter > 0)
	})
}

// answers collects what a batch was answered.
type answers [][]byte

func (a answers) Reply(i int, body []byte) { a[i] = slices.Clone(body) }

func (a answers) Later(i int) cluster.Later {
	return func(body []byte) { a[i] = slices.Clone(body) }
}

// Whatever a member sends, it is answered and the node goes on.
func FuzzServe(f *testing.F) {
	n, err := Start(f.Context(), Config{Logger: quiet})
	require.NoError(f, err)
	f.Cleanup(func() { n.Close() })
	limit := bucket.Limit{Rate: 10, Per: time.Second}
	for _, op := range []op{opTake, opDebit, opRefund, opPeek, opReset} {
		one := ask{id: bucket.ID{Hi: 1, Lo: 2}, limit: &limit, units: 1}
		f.Add(one.append(header{op: op, asks: 1}.append(nil)))
		two := ask{id: bucket.ID{Hi: 1, Lo: 3}, limit: &limit, units: 1}
		f.Add(two.append(one.append(header{op: op, asks: 2}.append(nil))))
		f.Add(one.append(one.append(header{op: op, asks: 2}.append(nil))))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		got := make(answers, 1)
		b := cluster.NewBatch("fuzz", got)
		b.Requests = [][]byte{request}
		inbound{n}.Serve(b)
		h, err := parseHeader(request)
		if err != nil {
			require.Empty(t, got[0])
			return
		}
		if len(got[0]) > 0 {
			_, err := parseAnswer(got[0], int(h.asks))
			require.NoError(t, err)
		}
		inbound{n}.Late(nobody{}, request, got[0])
	})
}

// nobody takes what it is told, and has no answer.
type nobody struct{ cluster.Peer }

func (nobody) Tell([]byte) {}
