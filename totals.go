package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/wire"
)

// totalsWait is how long a member may take to answer.
const totalsWait = 500 * time.Millisecond

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

// serveTotals answers another member, apart from checks.
func (n *Node) serveTotals(from env.Sender, body []byte, answer cluster.Later) {
	if len(body) > 0 {
		answer(nil)
		return
	}
	n.answerApart(from, answer, func(b []byte) []byte {
		t := n.meters.Limits.Totals()
		return t.Append(b)
	})
}

// Totals returns what all members of the cluster have decided. It asks every member, for
// half a second at most, and names those that did not answer. Of a node that has left, it has
// nothing. The error is ErrClosed, or the context's if that is done.
func (n *Node) Totals(ctx context.Context) (Totals, error) {
	if n.env.Ended() {
		return Totals{}, ErrClosed
	}
	v, all, errs := askAll(ctx, n, wire.OpTotals, totalsWait, stats.ParseTotals, n.meters.Limits.Totals)
	if err := ctx.Err(); err != nil {
		return Totals{}, err
	}
	t := Totals{Members: make(map[string]MemberTotals)}
	for i := range all {
		if errs[i] != nil {
			t.Missing = append(t.Missing, v.Members[i].Name)
			continue
		}
		t.Members[v.Members[i].Name] = memberTotals(&all[i])
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
