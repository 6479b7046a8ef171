package cluster

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weir-go/weir/cluster/detect"
)

// delegate is what memberlist calls. It calls from its own loops, in part with
// its own lock held: none of these may block, nor call memberlist.
type delegate struct{ *gossip }

var _ interface {
	memberlist.Delegate
	memberlist.EventDelegate
	memberlist.AliveDelegate
	memberlist.MergeDelegate
} = delegate{}

func (d delegate) NodeMeta(limit int) []byte {
	b := encode(d.metadata())
	if len(b) > limit {
		return nil // cannot be: Start has checked it at its longest
	}
	return b
}

// NotifyMsg takes a broadcast of records.
func (d delegate) NotifyMsg(b []byte) { d.mergeRecords(b) }

func (d delegate) MergeRemoteState(b []byte, _ bool) { d.mergeRecords(b) }

func (d delegate) mergeRecords(b []byte) {
	now := time.Now()
	records, err := decodeRecords(b, now)
	if err != nil {
		d.log.Debug("cannot use a record of a member", "error", err)
		return
	}
	d.step(func(r *detect.Roster) detect.Change { return r.Merge(records, now) })
}

func (d delegate) LocalState(bool) []byte {
	d.mu.Lock()
	records := d.roster.Records()
	d.mu.Unlock()
	return encodeRecords(records, time.Now())
}

func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.broadcasts.GetBroadcasts(overhead, limit)
}

func (d delegate) NotifyJoin(n *memberlist.Node)   { d.up(n) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.up(n) }

func (d delegate) up(n *memberlist.Node) {
	m, err := decodeMetadata(n.Name, n.Meta)
	if err != nil || n.Name == d.cfg.Name {
		return // NotifyAlive has refused it, or it is this node
	}
	at := canonical(n.Addr.String(), strconv.Itoa(int(n.Port)))
	d.step(func(r *detect.Roster) detect.Change { return r.RecordAlive(m.record(n.Name), at, time.Now()) })
}

func (d delegate) NotifyLeave(n *memberlist.Node) {
	name := n.Name
	d.step(func(r *detect.Roster) detect.Change { return r.RecordDeath(name, time.Now()) })
}

// errFull is made once, as any sender of gossip can cause it.
var errFull = fmt.Errorf("cluster: more than %d members, or more than %d that come at once and %d in each second", detect.MaxMembers, detect.NewMembers, detect.NewMembersEach)

// NotifyAlive refuses members of other clusters, and members for which there is no room:
// memberlist would keep each, probe it and tell others of it.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	if err := d.belongs(n); err != nil {
		return err
	}
	d.mu.Lock()
	room := d.roster.HasRoom(n.Name, time.Now())
	d.mu.Unlock()
	if !room {
		d.mux.gossiped.add(reasonMembers, &net.UDPAddr{IP: n.Addr, Port: int(n.Port)}, errFull)
		return errFull
	}
	return nil
}

// belongs returns why a member is not of this cluster, nil if it is.
func (d delegate) belongs(n *memberlist.Node) error {
	m, err := decodeMetadata(n.Name, n.Meta)
	switch {
	case err != nil:
		return err
	case [16]byte(m.Seed) != d.cfg.Seed:
		return fmt.Errorf("%w (%s at %s)", errSeed, n.Name, m.Addr)
	case m.Region != d.cfg.Region:
		return fmt.Errorf("%w (%s at %s)", errRegion, n.Name, m.Addr)
	}
	return nil
}

// NotifyMerge refuses to merge with a cluster that has a member of another one.
func (d delegate) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if err := d.belongs(n); err != nil {
			return err
		}
	}
	return nil
}

// broadcast is a record that gossip spreads. A newer one about the same member
// takes its place.
type broadcast struct {
	name     string
	message  []byte
	finished func() // may be nil
}

func (b *broadcast) Name() string { return b.name }

func (b *broadcast) Invalidates(memberlist.Broadcast) bool { return false } // by name

func (b *broadcast) Message() []byte { return b.message }

func (b *broadcast) Finished() {
	if b.finished != nil {
		b.finished()
	}
}
