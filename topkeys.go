package weir

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// topWait is how long a member may take to answer.
	topWait = time.Second
	// topAsked is how many members are asked at once.
	topAsked = 16
)

// TopKeys are the keys that are asked for most, and denied most, in the whole cluster.
type TopKeys struct {
	Asked, Denied []TopKey // the most first
	// Held is those of InFlight limits, the most units held first, of which this node has a
	// Limiter: a key that is held and rarely asked for may not be among them.
	Held    []HeldKey
	Missing []string // names of members that did not answer: what they were asked for is not in it
	Silent  []string // names of members that tell nothing, as their Config.TopKeys is -1
}

// TopKey is a key of one limit, and how often it was asked for and denied lately: nodes
// halve all counts once a minute, so that of steady traffic they have what came in one to
// two minutes. Counts are no less than the truth, and too high by their Over at most, as
// far as the measured checks stand for all: each of the first few, and later one in 64.
type TopKey struct {
	Limit string
	ID    [16]byte // as Limiter.ID gives it
	Key   string   // as callers gave it, or masked; empty if Known is false
	// Known reports whether Key is known: the nodes that were asked keep it, and tell it
	// to members over authenticated connections alone.
	Known bool
	// Masked reports whether Key is not the key: it is a secret (Limit.SecretKeys), and Key
	// is "…" and its last four characters at most.
	Masked               bool
	Asks, AsksOver       uint64
	Denials, DenialsOver uint64
}

// HeldKey is a key of an InFlight limit, and the units that are held of it now.
type HeldKey struct {
	TopKey
	Held int64 // no more than Most is shown: of a Rate that was lowered, more may be held
	Most int64 // the Rate that the key was last asked by
}

// TopKeyStats says how Node.TopKeys fares on this node alone.
type TopKeyStats struct {
	Asked, Denied int    // keys that are remembered
	Dropped       uint64 // asks that were not counted there, as another was being counted. It only grows
}

// serveTop answers another member, apart from checks.
func (n *Node) serveTop(from env.Sender, body []byte, answer cluster.Later) {
	if len(body) > 0 {
		answer(nil)
		return
	}
	n.answerApart(from, answer, func(b []byte) []byte {
		top := n.meters.TopKeys.Top(n.env.Steady())
		return top.Append(b, n.cfg.tellsKeys())
	})
}

// tellsKeys reports whether a key's text may go to another member: not where anybody who
// reaches the port is one. A Cluster of the caller's knows whom it connects.
func (c *Config) tellsKeys() bool {
	return c.Cluster != nil || len(c.Secrets) > 0 || c.TLS != nil
}

// TopKeys returns the n keys that are asked for most in the whole cluster, and the n that
// are denied most, 1 to 100 each, and of these and others the n of which most is held. It
// asks every member, for a second at most, and names those that did not answer, and then the
// owners of what is held. Without Secrets and TLS other members tell no key's text.
// The error is ErrInvalid, ErrClosed, or the context's if that is done.
func (n *Node) TopKeys(ctx context.Context, most int) (TopKeys, error) {
	if most < 1 || most > stats.MaxTop {
		return TopKeys{}, fmt.Errorf("%w TopKeys: %d keys: ask for 1 to %d", ErrInvalid, most, stats.MaxTop)
	}
	if n.env.Ended() {
		return TopKeys{}, ErrClosed
	}
	v, all, errs := askAll(ctx, n, wire.OpTop, topWait, stats.ParseTop, func() stats.Top { return n.meters.TopKeys.Top(n.env.Steady()) })
	var t TopKeys
	for i := range all {
		switch {
		case errs[i] != nil:
			t.Missing = append(t.Missing, v.Members[i].Name)
		case all[i].Silent:
			t.Silent = append(t.Silent, v.Members[i].Name)
		}
	}
	if v.Self < 0 { // it has left
		all = append(all, n.meters.TopKeys.Top(n.env.Steady()))
	}
	asked, denied := stats.MergeTop(all, stats.MaxTop)
	held := n.heldKeys(ctx, slices.Concat(asked, denied))
	if err := ctx.Err(); err != nil {
		return TopKeys{}, err
	}
	t.Asked, t.Denied = n.topKeys(asked[:min(len(asked), most)]), n.topKeys(denied[:min(len(denied), most)])
	t.Held = held[:min(len(held), most)]
	return t, nil
}

// heldKeys looks at what is held of the keys of InFlight limits among all, for topWait at most.
func (n *Node) heldKeys(ctx context.Context, all []stats.TopKey) []HeldKey {
	ctx, cancel := context.WithTimeout(ctx, topWait)
	defer cancel()
	slices.SortFunc(all, func(a, b stats.TopKey) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	all = slices.CompactFunc(all, func(a, b stats.TopKey) bool { return a.ID == b.ID })
	var asks []wire.Ask
	all = slices.DeleteFunc(all, func(k stats.TopKey) bool {
		l, known := n.registry.Find(k.Limit)
		if !known || l.Algorithm != InFlight {
			return true
		}
		id := bucket.ID{Hi: binary.BigEndian.Uint64(k.ID[:]), Lo: binary.BigEndian.Uint64(k.ID[8:])}
		// FailOpen, as what is held is asked for, and not the part of it that this side may grant.
		asks = append(asks, wire.Ask{ID: id, Name: k.Limit, Limit: &bucket.Limit{Algorithm: InFlight, Rate: l.Rate}, Units: 1, Partition: wire.FailOpen})
		return false
	})
	if len(asks) == 0 {
		return nil
	}
	held := make([]HeldKey, len(asks))
	env.Gather(len(asks), topAsked, func(i int) {
		var r wire.Result
		if n.decide(ctx, wire.OpPeek, wire.FlagTentative, &asks[i], &r) == nil {
			held[i] = HeldKey{n.topKey(all[i]), r.Limit - r.Remaining, r.Limit}
		}
	})
	held = slices.DeleteFunc(held, func(k HeldKey) bool { return k.Held == 0 })
	slices.SortStableFunc(held, func(a, b HeldKey) int { return cmp.Compare(b.Held, a.Held) })
	return held
}

func (n *Node) topKeys(all []stats.TopKey) (top []TopKey) {
	for _, k := range all {
		top = append(top, n.topKey(k))
	}
	return top
}

// topKey finds out whether the key is masked: its text has another id.
func (n *Node) topKey(k stats.TopKey) TopKey {
	id := n.identity.ID(identity.Prefix(k.Limit), k.Key)
	id.Hi |= binary.BigEndian.Uint64(k.ID[:]) & wire.GlobalIDBit
	return TopKey{k.Limit, k.ID, k.Key, k.Known, k.Known && identity.Bytes(id) != k.ID, k.Asks, k.AsksOver, k.Denials, k.DenialsOver}
}

// askAll asks every member what op asks for, each for wait at most, and takes this node's answer from own. The
// answers and the errors are in the order of the view's members.
func askAll[T any](ctx context.Context, n *Node, op wire.Op, wait time.Duration, parse func([]byte) (T, error), own func() T) (v *view.View, all []T, errs []error) {
	v = n.handover.View()
	all, errs = make([]T, len(v.Members)), make([]error, len(v.Members))
	env.Gather(len(v.Members), topAsked, func(i int) {
		switch hop := v.Next[i]; { // through others, if it is heard by them alone
		case i == v.Self:
			all[i] = own()
		case hop < 0:
			errs[i] = cluster.ErrUnheard
		default:
			h := wire.Header{Op: op, Hops: wire.MaxHops, Wait: wait, To: v.Hashes[i]}
			answer, err := env.Call(ctx, v.Members[hop].Peer, h, nil, wait)
			if err == nil {
				all[i], err = parse(answer)
			}
			errs[i] = err
		}
	})
	return v, all, errs
}
