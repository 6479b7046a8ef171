package weir

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/stats"
)

// TopKeys are the most requested, most denied and most held keys in the whole cluster.
type TopKeys struct {
	Asked, Denied []TopKey // in descending order
	// Held has the keys of InFlight limits of which this node has a Limiter, in descending order
	// of the units held. A key that is held but rarely requested may be missing.
	Held    []HeldKey
	Missing []string // names of members that did not answer, and whose keys are not included
	Silent  []string // names of members that report no keys, because their Config.TopKeys is -1
}

// TopKey is a key of a limit, with the number of recent checks and denials. Nodes halve all counts once a
// minute, so that with steady traffic a count is the number of checks in 1 to 2 minutes. A count is never
// too low, and too high by at most its AsksOver or DenialsOver. These bounds are exact only for the sampled
// checks: each of the first few checks is sampled, and later 1 in 64, which counts as 64. Shadows do not count.
type TopKey struct {
	Limit                string
	ID                   [16]byte // the ID that Limiter.ID returns
	Key                  string   // the key as callers passed it, or its masked text; empty if Known is false
	Known                bool     // a node that answered has the text of the key, and may send it (Node.TopKeys)
	Masked               bool     // Key is a masked text, because the key is a secret (Limit.SecretKeys)
	Asks, AsksOver       uint64
	Denials, DenialsOver uint64
}

// HeldKey is a key of an InFlight limit, with the units that are held now.
type HeldKey struct {
	TopKey
	Held int64 // units held, or Most if more are held, as after the Rate was lowered
	Most int64 // the Rate of the last request for the key with the highest Version
}

// sharesKeys reports whether the text of a key may be sent to other members. Without Secrets and
// TLS, every process that reaches the port can become a member, so no text may be sent. A Cluster
// of the caller determines its own members.
func (c *Config) sharesKeys() bool {
	return c.Cluster != nil || len(c.Secrets) > 0 || c.TLS != nil
}

// TopKeys returns the most requested keys in the whole cluster, the most denied keys, and the keys
// of which the most units are held, among the 100 most requested and the 100 most denied keys. The
// argument most is the maximum length of each list, 1 to 100. TopKeys asks 16 members at a time,
// each for at most a second, and then the owners of the held keys, for at most another second in
// all. With neither Secrets, TLS nor Cluster in their Config, other members do not send the text of
// keys. The error is ErrInvalid, ErrClosed, or that of a ctx that is done.
func (n *Node) TopKeys(ctx context.Context, most int) (TopKeys, error) {
	if most < 1 || most > stats.MaxTop {
		return TopKeys{}, fmt.Errorf("%w TopKeys: %d keys: ask for 1 to %d", ErrInvalid, most, stats.MaxTop)
	}
	if n.env.Ended() {
		return TopKeys{}, ErrClosed
	}
	top, err := n.clients.survey.Top(ctx, most)
	named := func(k stats.TopKey) TopKey { return TopKey(k) }
	return TopKeys{
		Asked: convert(top.Asked, named), Denied: convert(top.Denied, named), Missing: top.Missing, Silent: top.Silent,
		Held: convert(top.Held, func(k stats.HeldKey) HeldKey { return HeldKey{TopKey(k.TopKey), k.Held, k.Most} }),
	}, err
}

// convert returns the result of f for each element, and nil for none.
func convert[From, To any](all []From, f func(From) To) (to []To) {
	for _, one := range all {
		to = append(to, f(one))
	}
	return to
}

// Totals are the decisions of all members since they started.
type Totals struct {
	Members map[string]MemberTotals // decisions of the members that answered, by name
	Missing []string                // names of members that did not answer, or run a release without Totals
}

// MemberTotals are the decisions of a member about the checks of its own callers. They only grow.
type MemberTotals struct {
	Decisions map[Source]Outcomes
	Limits    map[string]LimitTotals // decisions by the name of the limit, for the 128 limits with the most denials
}

// LimitTotals are the decisions about a limit, from all sources.
type LimitTotals struct {
	Outcomes          // decisions about asks that are enforced
	Shadow   Outcomes // decisions about asks with Shadow, as if they were enforced
}

// Totals asks all members for their decisions, 16 at a time, each for at most half a second. The decisions
// of nodes that have left are not included. The error is ErrClosed, or that of a ctx that is done.
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

func memberTotals(totals *stats.Totals) MemberTotals {
	m := MemberTotals{make(map[Source]Outcomes), make(map[string]LimitTotals)}
	for source, o := range totals.Sources {
		if o != (stats.Outcomes{}) {
			m.Decisions[Source(source)] = Outcomes(o)
		}
	}
	for _, l := range totals.Limits {
		m.Limits[l.Name] = LimitTotals{Outcomes(l.Enforced), Outcomes(l.Shadow)}
	}
	return m
}

// Bans are bans in the whole cluster.
type Bans struct {
	Bans    []BannedKey // the last to end first
	Missing []string    // names of members that did not answer, or run a release without bans
}

// BannedKey is a key that is banned.
type BannedKey struct {
	Limit  string
	ID     [16]byte  // the ID that Limiter.ID returns, and ResetID accepts
	Key    string    // the key as callers passed it, or its masked text; empty if Known is false
	Known  bool      // a node that answered has the text of the key, and may send it (Node.TopKeys)
	Masked bool      // Key is a masked text, because the key is a secret (Limit.SecretKeys)
	Since  time.Time // zero if no node that answered began the ban
	Until  time.Time
}

// Bans asks all members for the bans that they have begun, or whose keys they deny. Each member lists at
// most 1,000 bans, as many as fit in 48 KiB, the last to end first. A node that has not begun a ban lists
// it after a sampled denial of the key (TopKey). TopKeys describes the text of keys and the waits for members.
// The error is ErrClosed, or that of a ctx that is done.
func (n *Node) Bans(ctx context.Context) (Bans, error) {
	if n.env.Ended() {
		return Bans{}, ErrClosed
	}
	all, missing, err := n.clients.survey.Bans(ctx)
	return Bans{convert(all, bannedKey), missing}, err
}

func bannedKey(b stats.Ban) BannedKey {
	k := BannedKey{Limit: b.Limit, ID: b.ID, Key: b.Key, Known: b.Known, Masked: b.Masked, Until: time.Unix(0, b.Until)}
	if b.Since > 0 {
		k.Since = time.Unix(0, b.Since)
	}
	return k
}
