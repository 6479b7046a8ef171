package gossip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weir-go/weir/cluster/detect"
)

// delegate is the part of a Gossip that memberlist calls. memberlist calls some methods while it holds
// its own lock: no method may block, or call memberlist.
type delegate struct{ *Gossip }

func (d delegate) NodeMeta(limit int) []byte {
	self := d.self()
	b := Encode(metadata{
		Version: version, Addr: self.Addr, Region: self.Region, Seed: d.cfg.Seed[:],
		Born: self.Born, Epoch: self.Epoch, Turn: self.Turn, State: self.Announced,
	})
	if len(b) > limit {
		return nil // New has refused it
	}
	return b
}

// NotifyMsg merges the records of a broadcast.
func (d delegate) NotifyMsg(b []byte) { d.mergeRecords(b) }

func (d delegate) MergeRemoteState(b []byte, _ bool) { d.mergeRecords(b) }

func (d delegate) mergeRecords(b []byte) {
	now := time.Now()
	records, err := DecodeRecords(b, now)
	if err != nil {
		d.cfg.Log.Debug("cannot use a record of a member", "error", err)
		return
	}
	d.cfg.Step(func(r *detect.Roster) detect.Change { return r.Merge(records, now) })
}

func (d delegate) LocalState(bool) []byte {
	var records []detect.Record
	d.read(func(r *detect.Roster) { records = r.Records() })
	return EncodeRecords(records, time.Now())
}

func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.broadcasts.GetBroadcasts(overhead, limit)
}

func (d delegate) NotifyJoin(n *memberlist.Node)   { d.recordAlive(n) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.recordAlive(n) }

func (d delegate) recordAlive(n *memberlist.Node) {
	m, err := decodeMetadata(n.Name, n.Meta)
	if err != nil || n.Name == d.cfg.Name {
		return // NotifyAlive has refused n, or n is this node
	}
	ip, _ := netip.AddrFromSlice(n.Addr)
	at := netip.AddrPortFrom(ip.Unmap(), n.Port).String()
	d.cfg.Step(func(r *detect.Roster) detect.Change { return r.RecordAlive(m.record(n.Name), at, time.Now()) })
}

func (d delegate) NotifyLeave(n *memberlist.Node) {
	name, onSide := n.Name, d.cfg.OnSide(n.Name)
	d.cfg.Step(func(r *detect.Roster) detect.Change { return r.RecordDeath(name, onSide, time.Now()) })
}

// ErrFull reports that the roster has no room for a member. It is formatted only once,
// because any sender of gossip can cause it at any rate.
var ErrFull = fmt.Errorf("cluster: the roster is full, or new members arrive too fast: the maximum is %d members, and %d new members at once and %d in each second after that", detect.MaxMembers, detect.NewMembers, detect.NewMembersEach)

// NotifyAlive refuses members of other clusters, and members for which there is no room:
// memberlist would keep each of them, probe it and spread it.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	if err := d.checkCluster(n); err != nil {
		return err
	}
	room := false
	d.read(func(r *detect.Roster) { room = r.HasRoom(n.Name, time.Now()) })
	if !room {
		d.cfg.Refused(ReasonMembers, &net.UDPAddr{IP: n.Addr, Port: int(n.Port)}, ErrFull)
		return ErrFull
	}
	return nil
}

// Errors for members of other clusters.
var (
	ErrSeed   = errors.New("cluster: the member has another Seed: give all nodes the same Seed")
	ErrRegion = errors.New("cluster: the member is in another Region: join members of this node's region")
)

// checkCluster returns an error if a member is not of this cluster.
func (d delegate) checkCluster(n *memberlist.Node) error {
	m, err := decodeMetadata(n.Name, n.Meta)
	switch {
	case err != nil:
		return err
	case [16]byte(m.Seed) != d.cfg.Seed:
		return fmt.Errorf("%w (%s at %s)", ErrSeed, n.Name, m.Addr)
	case m.Region != d.cfg.Region:
		return fmt.Errorf("%w (%s at %s)", ErrRegion, n.Name, m.Addr)
	}
	return nil
}

// NotifyMerge refuses an exchange with a node that knows a member of another cluster.
func (d delegate) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if err := d.checkCluster(n); err != nil {
			return err
		}
	}
	return nil
}

// broadcast is a record that gossip spreads. A later broadcast about the same member replaces it.
type broadcast struct {
	name    string
	message []byte
}

func (b *broadcast) Name() string { return b.name }

func (b *broadcast) Invalidates(memberlist.Broadcast) bool { return false } // memberlist compares the names

func (b *broadcast) Message() []byte { return b.message }

func (b *broadcast) Finished() {}
