package weir

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/internal/stats"
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
	top, err := n.clients.survey.Top(ctx, most)
	t := TopKeys{Asked: topKeys(top.Asked), Denied: topKeys(top.Denied), Missing: top.Missing, Silent: top.Silent}
	for _, k := range top.Held {
		t.Held = append(t.Held, HeldKey{TopKey(k.NamedKey), k.Held, k.Most})
	}
	return t, err
}

func topKeys(all []stats.NamedKey) (top []TopKey) {
	for _, k := range all {
		top = append(top, TopKey(k))
	}
	return top
}

// Totals are what all members have decided since they started.
type Totals struct {
	Members map[string]MemberTotals // by name, those that answered
	Missing []string                // names of members that did not answer, or run a release that knows no Totals
}

// MemberTotals are what one member has decided of checks that it was asked for by its own
// callers. They only grow.
type MemberTotals struct {
	Decisions map[Source]Outcomes
	Limits    map[string]LimitTotals // by name, the 128 limits with the most denials
}

// LimitTotals are the decisions of one limit, of all sources.
type LimitTotals struct {
	Outcomes          // of asks that are enforced
	Shadow   Outcomes // of asks with Shadow: what they would have got
}

// Totals returns what all members of the cluster have decided. It asks every member, for
// half a second at most, and names those that did not answer. Of a node that has left, it has
// nothing. The error is ErrClosed, or the context's if that is done.
func (n *Node) Totals(ctx context.Context) (Totals, error) {
	if n.env.Ended() {
		return Totals{}, ErrClosed
	}
	members, missing, err := n.clients.survey.Totals(ctx)
	if err != nil {
		return Totals{}, err
	}
	t := Totals{Members: make(map[string]MemberTotals), Missing: missing}
	for name, of := range members {
		t.Members[name] = memberTotals(&of)
	}
	return t, nil
}

func memberTotals(of *stats.Totals) MemberTotals {
	m := MemberTotals{make(map[Source]Outcomes), make(map[string]LimitTotals)}
	for source, o := range of.Sources {
		if o != (stats.Outcomes{}) {
			m.Decisions[Source(source)] = Outcomes(o)
		}
	}
	for _, l := range of.Limits {
		m.Limits[l.Name] = LimitTotals{Outcomes(l.Enforced), Outcomes(l.Shadow)}
	}
	return m
}
