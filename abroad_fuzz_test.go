package weir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/realtime"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// regionalCounts are all counts of Regional limits that a node has, with what is used.
func regionalCounts(n *Node) map[bucket.ID]int64 {
	counts := make(map[bucket.ID]int64)
	var ids []bucket.ID
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		cursor, ids = n.counts.Scan(cursor, ids[:0])
		for _, id := range ids {
			if !wire.IsGlobal(id) {
				counts[id], _, _ = n.counts.Used(id, n.env.Now())
			}
		}
	}
	return counts
}

// FuzzRequestsFromAnotherRegion has a node of another region ask anything, over a real
// connection, of a node that has a member beside it. Both keep every Regional count as it
// was and make none, publish nothing, have the members that they had, hand nothing on
// but exchanges, and answer each ask.
func FuzzRequestsFromAnotherRegion(f *testing.F) {
	nodes := fleet(f, 2, func(_ int, cfg *Config) {
		cfg.Region, cfg.Regions = "near", map[string][]string{"far": {"127.0.0.1:1"}}
	})
	near := nodes[0]
	v := near.handover.View()
	far := cluster.NewGossip(cluster.Config{
		Name: "far-1", Bind: "127.0.0.1:0", Region: "far", Regions: map[string][]string{"near": {v.Members[v.Self].Addr}},
		Seed: near.identity.Fingerprint(), Logger: quiet,
	})
	require.NoError(f, far.Start(f.Context(), foreignNode{}))
	f.Cleanup(func() { require.NoError(f, far.Close()) })

	// A count of each algorithm that does not recover while it is looked at, on either node.
	type pair struct{ regional, global bucket.ID }
	var (
		pairs   []pair
		numbers []bucket.Limit
	)
	for _, algorithm := range algorithms {
		l := Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 100, Per: 24 * 365 * time.Hour}
		global := l
		global.Name, global.Scope = "global "+l.Name, Global
		regionals, globals := limiters(f, nodes, l), limiters(f, nodes, global)
		for _, owner := range nodes {
			key := ownedBy(f, regionals[0], owner)
			d, err := regionals[0].AllowN(f.Context(), key, 40)
			require.NoError(f, err)
			require.True(f, d.Allowed)
			pairs = append(pairs, pair{regionals[0].id(key), globals[0].id(key)})
			numbers = append(numbers, l.numbers())
		}
	}
	require.NoError(f, near.Publish("name", 7, []byte("value")))
	copied := func() bool { // each node is the other's successor
		for _, n := range nodes {
			counts := regionalCounts(n)
			if len(counts) != len(pairs) || slices.Min(slices.Collect(maps.Values(counts))) < 40 {
				return false
			}
			if values, _ := n.Published(""); len(values) != 1 {
				return false
			}
		}
		return true
	}
	realtime.Eventually(f, "each node has the copies", copied)
	request := func(o wire.Op, flags, hops uint8, body []byte) []byte {
		return append(wire.Header{Op: o, Flags: flags, Hops: hops, Wait: 50 * time.Millisecond}.Append(nil), body...)
	}
	speak := func(t *testing.T, asked []byte, tell bool) {
		near.regions.Pardon("far") // fuzzing is faster than a region may be
		if tell {
			far.Region("near").Tell(asked)
			asked = nil // behind it
		}
		_, err := far.Region("near").Ask(t.Context(), asked, nil, 10*time.Second)
		// A machine that stands still ends connections, which are opened again: what ends
		// them itself does so each time.
		lost := func() bool { return errors.Is(err, cluster.ErrUnheard) || errors.Is(err, cluster.ErrBroken) }
		if lost() {
			realtime.Eventually(t, "the connection is opened again", func() bool {
				_, err = far.Region("near").Ask(t.Context(), asked, nil, 10*time.Second)
				return !lost()
			})
		}
		require.NoError(t, err)
	}
	realtime.Eventually(f, "the region is reached", func() bool {
		_, err := far.Region("near").Ask(f.Context(), nil, nil, time.Second)
		return err == nil
	})

	before := make(map[*Node]map[bucket.ID]int64)
	members := make(map[*Node][]Member)
	for _, n := range nodes {
		before[n], members[n] = regionalCounts(n), n.Members()
	}
	print := near.regions.Holdings.Exchange(nil).Print
	for i, p := range pairs {
		one := func(o wire.Op, id bucket.ID, units int64) []byte {
			h := wire.Header{Op: o, Asks: 1, Hops: wire.MaxHops, Wait: 50 * time.Millisecond}
			a := wire.Ask{ID: id, Limit: &numbers[i], Units: units}
			return a.Append(h.Append(nil))
		}
		for _, id := range []bucket.ID{p.regional, p.global, countsync.Elsewhere(p.regional)} {
			for o := wire.OpTake; o <= wire.OpReset; o++ {
				units := int64(1)
				if o == wire.OpReset {
					units = near.env.Now()
				}
				f.Add(one(o, id, units), byte(i%3), o == wire.OpDebit)
			}
			st := countsync.Statement{ID: id, Limit: numbers[i], Number: near.env.Now(), From: 7, Received: 1, Wants: 10, Must: 10, Spent: 9, Series: 1, Forgot: i%2 == 0}
			e := countsync.Exchange{Region: "far", Print: print, Statements: []countsync.Statement{st}}
			f.Add(request(wire.OpExchange, 0, 0, e.Append(nil)), byte(i%3), false)
			f.Add(request(wire.OpExchange, wire.FlagAbroad, 0, e.Append(nil)), byte(i%3), true)
		}
		f.Add(one(wire.OpReset, p.global, math.MaxInt64), byte(0), false)
	}
	f.Add(request(wire.OpPublish, 0, 0, publication("name", 9, "b")), byte(0), false)
	f.Add(request(wire.OpCompare, 0, 0, []byte{0}), byte(0), false)
	f.Add(request(wire.OpDeclare, 0, 0, declaration(&Limit{Name: "fixed_window", Rate: 99, Per: time.Hour})), byte(0), false)
	f.Add(request(wire.OpTop, 0, 0, nil), byte(0), false)
	f.Add(request(wire.OpTotals, 0, 0, nil), byte(0), false)
	f.Add(request(wire.OpLocate, 0, 0, handover.AppendRanges(make([]byte, 8), countsync.All())), byte(0), false)
	frame := []byte{2, 0} // version, flags
	for _, number := range []uint64{v.Hashes[1-v.Self], v.Hashes[v.Self], 1} {
		frame = binary.LittleEndian.AppendUint64(frame, number)
	}
	f.Add(request(wire.OpStream, 0, 0, append(binary.LittleEndian.AppendUint64(nil, 0), frame...)), byte(1), false)
	f.Add(request(wire.OpExchange, 0, 0, (&countsync.Exchange{Region: "near"}).Append(nil)), byte(0), false)

	f.Fuzz(func(t *testing.T, asked []byte, to byte, tell bool) {
		asked = bytes.Clone(asked)
		if len(asked) >= wire.HeaderBytes && to%3 > 0 { // for this node, or for the one beside it
			binary.LittleEndian.PutUint64(asked[8:], v.Hashes[(v.Self+int(to%3))%2])
		}
		speak(t, asked, tell)
		for _, n := range nodes {
			require.Equal(t, before[n], regionalCounts(n))
			if !slices.Equal(members[n], n.Members()) { // a busy machine may have them lose sight of each other
				realtime.Eventually(t, "they see each other again", func() bool { return slices.Equal(members[n], n.Members()) })
			}
			values, _ := n.Published("")
			require.Equal(t, []Published{{"name", 7, []byte("value")}}, values)
			is := n.Stats()
			require.Zero(t, is.Conflicts)
			require.Zero(t, is.Passed)
		}
	})
}
