// Package publish keeps small named values equal on all nodes: rules that change at run time, or
// an override for a key.
//
// Each node has a Store with all values. A node sends a change to its neighbors, and each neighbor
// passes on the changes that are new to it. Nodes find lost changes when they compare their stores,
// two at a time. These invariants hold:
//
//   - Of two entries of a name all nodes keep the greater entry: merging is associative,
//     commutative and idempotent. So the order, the path and the number of arrivals of an entry do
//     not matter, and a comparison of two stores in any state makes progress. If the order
//     depended on the node, stores would differ forever.
//   - A name that is withdrawn leaves a tombstone for tombstoneFor. Without the tombstone, a member
//     that was disconnected would bring the value back.
//   - If there is no room, a store drops the last entries in an order that is the same on all nodes. So
//     a full store does not change if an arriving entry comes after all of its entries. Otherwise two
//     full stores would send each other the same entries forever.
//   - No version is more than maxAhead above the time of day, except for the next version of the held
//     entry. So each value can be replaced later.
//   - Messages, names, values and stores are bounded, whatever members send.
package publish

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/loglimit"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// CompareEvery is the time between two comparisons. A node compares with its neighbors in turn. A
	// comparison finds values that were lost in transit.
	CompareEvery = 2 * time.Second
	// compareRested replaces CompareEvery once the node has compared with each neighbor and found
	// no change. A member that lacks a value also learns of it from the questions of its neighbors.
	compareRested = 10 * time.Second
	// compareWait is how long to wait for the answer to a Question.
	compareWait = time.Second
)

// Config contains the dependencies of a Publisher.
type Config struct {
	Log *slog.Logger
	Env *env.Env
}

// Publisher keeps a node's Store in agreement with the stores of other members.
type Publisher struct {
	Store
	cfg       Config
	farAhead  loglimit.Line // limits the number of log lines about refused versions
	newcomers chan struct{} // signals that the neighbors may have changed
	differing chan string   // the name of a member whose Question has shown other values
}

// New returns a Publisher with an empty Store.
func New(cfg Config) *Publisher {
	return &Publisher{cfg: cfg, newcomers: make(chan struct{}, 1), differing: make(chan string, 1)}
}

// Put publishes a value on this node, and sends it to the neighbors. An empty value withdraws the
// name. Version 0 is the next version. The error names the field.
func (p *Publisher) Put(name string, version uint64, value []byte) error {
	now := p.cfg.Env.Now()
	if len(value) <= MaxValue { // a longer value is refused, so it is not copied first
		value = slices.Clone(value)
	}
	news, err := p.put(entry{Item{name, version, value}, now}, p.cfg.Env.TimeOfDay(), now)
	p.spread(p.cfg.Env.View(), news, -1)
	return err
}

// spread sends the news in a message to the neighbors of this node, which pass them on. The argument from is
// the index of the member that has sent the news to this node, or -1. spread leaves out that member and the members
// that are connected to it. If the news do not fit into one message, they wait until stores are compared.
func (p *Publisher) spread(v *view.View, news []entry, from int) {
	size := 0
	for i := range news {
		size += news[i].encodedSize()
	}
	if size == 0 || size > maxMessageBytes {
		return
	}
	message := appendEntries(nil, news, p.cfg.Env.Now())
	for _, i := range v.Neighbors() {
		if from < 0 || !v.IsConnected(from, i) { // each member is connected to itself
			v.Members[i].Peer.Send(env.Request(wire.Header{Op: wire.OpPublish, To: v.Hashes[i]}, message))
		}
	}
}

// Serve merges the entries in a message of another member. The error is wire.ErrMalformed.
func (p *Publisher) Serve(message []byte, from string) error {
	list, err := parseEntries(message, p.cfg.Env.Now())
	if err == nil {
		p.learn(p.cfg.Env.View(), list, from)
	}
	return err
}

// learn merges entries of another member, and passes on the new entries.
func (p *Publisher) learn(v *view.View, list []entry, from string) {
	news, refused := p.merge(list, p.cfg.Env.Now(), latestVersion(p.cfg.Env.TimeOfDay()))
	if refused != nil {
		if unlogged, due := p.farAhead.Due(time.Now()); due {
			p.cfg.Log.Warn("refused a published value: its version is too far ahead; set its publisher's clock",
				"member", from, "name", refused.Name, "version", refused.Version, "unlogged", unlogged)
		}
	}
	member, known := v.Named[view.NameHash(from)]
	if !known {
		member = -1
	}
	p.spread(v, news, member)
}

// Answer appends the answer to a Question. The argument from is the name of the member that has asked. If the
// store has changed, Answer sorts it first.
func (p *Publisher) Answer(b []byte, q *Question, from string) []byte {
	d := p.findDifference(q, maxMessageBytes)
	if q.digests != p.digestsNow() {
		select {
		case p.differing <- from:
		default:
		}
	}
	return d.append(b, p.cfg.Env.Now())
}

// Changed notifies Run that the set of connected members may have changed.
func (p *Publisher) Changed() { env.Signal(p.newcomers) }

// Run compares the values of this node with the values of other members until ctx is done: with each
// member as soon as the member is a neighbor, and then with the neighbors in turn. The argument first is the time
// until the first turn. After a turn with each neighbor and no change, Run rests: the time between two turns is
// longer. If a member asks a Question during a rest, and has other values, Run compares with
// this member at once. While Run does not rest, it waits for the turn of the member, because
// the values of two full stores may always differ.
func (p *Publisher) Run(ctx context.Context, first time.Duration) {
	tick := time.NewTimer(first)
	defer tick.Stop()
	met := make(map[uint64]bool) // for each neighbor, by hash, whether this node has compared with it
	turn, same := 0, 0           // same is the number of turns since the last change
	var (
		changed <-chan struct{} // closed by the next change of the values; nil unless Run rests
		differs <-chan string   // differing; nil unless Run rests
	)
	for {
		due, other := false, ""
		select {
		case <-p.newcomers:
		case <-tick.C:
			due = true
		case <-changed:
		case other = <-differs:
		case <-ctx.Done():
			return
		}
		// If newcomers and tick are both ready, handle both, whichever select has chosen.
		env.Unsignal(p.newcomers)
		select {
		case <-tick.C:
			due = true
		default:
		}
		if due {
			p.sweep(p.cfg.Env.Now())
		} else {
			same = 0
		}
		v, before, revision := p.cfg.Env.View(), met, p.Stats().Revision
		heard := v.Neighbors()
		met = make(map[uint64]bool)
		for _, i := range heard {
			met[v.Hashes[i]] = before[v.Hashes[i]] || p.compare(ctx, v, i) == nil
		}
		if i, known := v.Named[view.NameHash(other)]; known && v.Direct[i] && i != v.Self {
			_ = p.compare(ctx, v, i)
		}
		if due && len(heard) > 0 {
			turn++
			if same++; p.compare(ctx, v, heard[turn%len(heard)]) != nil {
				same = 0 // this node asks the member again in its turn
			}
		}
		if p.Stats().Revision != revision {
			same = 0
		}
		switch rests := same >= len(heard); {
		case rests:
			if due || differs == nil { // a change without a neighbor does not put off the next turn
				tick.Reset(compareRested)
			}
			changed, differs = p.After(revision), p.differing
		case due || differs != nil:
			changed, differs = nil, nil
			tick.Reset(CompareEvery)
		}
	}
}

// compare merges the entries that another member has and this node lacks. The other member does the
// same, because it is connected to this node.
func (p *Publisher) compare(ctx context.Context, v *view.View, member int) error {
	q := Question{digests: p.digestsNow()}
	for {
		answer, err := env.Call(ctx, v.Members[member].Peer, wire.Header{Op: wire.OpCompare, To: v.Hashes[member]}, q.append(nil), compareWait)
		if err != nil {
			return err
		}
		d, err := parseDifference(answer, &q, p.cfg.Env.Now())
		if err != nil {
			return err
		}
		p.learn(v, d.list, v.Members[member].Name)
		if !d.more {
			return nil
		}
		q.after = d.list[len(d.list)-1].Name
	}
}
