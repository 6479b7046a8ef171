package cluster

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/weir-go/weir/cluster/detect"
)

// BenchmarkRosterOfThousandMembers measures the work after a change of the roster or of connections, and the
// work for the statistics. No check waits for this work.
func BenchmarkRosterOfThousandMembers(b *testing.B) {
	dial := func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed }
	p := newPeers(peersConfig{Self: hello{Name: "self", Addr: "self"}, Dial: dial}, &testHandler{})
	b.Cleanup(p.close)
	r, now := detect.NewRoster(detect.Record{Name: "self", Addr: "self"}, time.Minute), time.Now()
	for i, record := range servingRecords(999) {
		r.RecordAlive(record, record.Addr, now.Add(time.Duration(i)*time.Second))
	}
	refresh := func() {
		entries := r.Members()
		others := make([]Member, 0, len(entries))
		for _, e := range entries {
			if e.Name != "self" {
				others = append(others, memberOf(e.Record))
			}
		}
		p.set(others)
		NewView("self", now, entries, p.connections, p.peer)
	}
	refresh()
	b.Run("view", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			refresh()
		}
	})
	b.Run("stats", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.stats()
		}
	})
}
