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
	var members []Member
	showRoster := func() {
		members = RosterMembers(r.Members(), now)
		p.set(members)
		addPeers(p, members)
	}
	refresh := func() {
		p.set(members)
		NewView("self", members, p.connections)
	}
	showRoster()
	b.Run("connections", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			refresh()
		}
	})
	b.Run("roster", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			showRoster()
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

// addPeers sets the field Peer of members.
func addPeers(p *peers, members []Member) {
	for i, m := range members {
		members[i].Peer = p.peer(m.Name)
	}
}
