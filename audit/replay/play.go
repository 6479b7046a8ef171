package replay

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
	"github.com/weir-go/weir/rules"
)

// player decides requests by a Set, on a node of its own whose clock shows the time of each request.
type player struct {
	node    *weir.Node
	now     atomic.Int64 // clock of the node, in Unix nanoseconds
	set     *rules.Set
	report  *Report
	results map[string]*Limit // keyed by the name of the limit

	refunds   []refund        // pending refunds, ordered by time
	asks      []weir.Ask      // asks of the current group
	asked     []*audit.Record // the record of each ask
	decisions weir.Decisions
}

const (
	absent  = "of a limit that the rules do not have, or of an overrun: ignored"
	maxKeys = 10_000_000 // counts of the node
)

func newPlayer(ctx context.Context, set *rules.Set, report *Report) (*player, error) {
	p := &player{set: set, report: report, results: make(map[string]*Limit)}
	var err error
	p.node, err = weir.Start(ctx, weir.Config{
		Now: func() time.Time { return time.Unix(0, p.now.Load()) }, MaxKeys: maxKeys, TopKeys: -1, Logger: slog.New(slog.DiscardHandler),
	})
	return p, err
}

// limiter returns the Limiter for a record, with the numbers for its key, tier and time.
func (p *player) limiter(l *rules.Limit, rule *rules.Rule, r *audit.Record) (made *weir.Limiter, err error) {
	factor := int64(100)
	if r.Factor > 0 && rule.Adapt != nil {
		factor = r.Factor
	}
	asked := r.Time.Add(-time.Duration(r.TookUS) * time.Microsecond) // by the clock of the node whose rules apply
	numbers := l.At(asked).Scaled(factor).ForKey(r.Tier, r.Key)
	if r.Overridden {
		numbers.Rate, numbers.Burst, numbers.Keep = r.Rate, r.Burst, r.Keep
		if per, err := time.ParseDuration(r.Per); err == nil {
			numbers.Per = per
		}
	}
	numbers.Varies, numbers.Ban = true, weir.Ban{}
	if made, err = p.node.Limiter(numbers); err == nil && r.Critical {
		made = made.Critical()
	}
	return made, err
}

// noteOf returns the reason for which a record is not decided again, or "".
func noteOf(l *rules.Limit, r *audit.Record) string {
	switch {
	case l == nil:
		return absent
	case r.Error != "":
		return "of a check that failed: ignored"
	case r.Operation == "wait" || r.Operation == "hold" || l.InFlight():
		return "of a hold or a queue, whose end is not recorded: ignored"
	case !audit.InSample(r.ID, r.Sample):
		return "of a key whose admissions are not recorded: ignored, use -audit_sample"
	case r.Banned || r.Paused:
		return "of a banned or paused key: stays denied"
	}
	return ""
}

// play decides a group again, after the refunds that are due.
func (p *player) play(g *group) {
	for len(p.refunds) > 0 && p.refunds[0].at <= g.at {
		r := p.refunds[0]
		p.refunds = p.refunds[1:]
		p.now.Store(r.at)
		_ = r.ask.Limiter.Refund(context.Background(), r.ask.Key, r.ask.Units)
	}
	if g.at < p.now.Swap(g.at) {
		p.report.Notes["far from its place in time: decided late"] += len(g.parts)
	}
	p.asks, p.asked = p.asks[:0], p.asked[:0]
	for i := range g.parts {
		p.add(g, &g.parts[i])
	}
	if len(p.asks) > 0 {
		p.decide()
	}
	took := p.decisions.Allowed() // whether the enforced asks of the group have spent their units: all do, or none
	for i, r := range p.asked {
		d := &p.decisions[i]
		p.record(r, d.Allowed)
		g.of.denied = g.of.denied || !d.Allowed && !p.asks[i].Shadow
		if d.Allowed && r.Request != 0 && took {
			g.of.taken = append(g.of.taken, refund{g.at + r.TookUS*int64(time.Microsecond), p.asks[i]})
		}
	}
	refused := g.parts[0].Refused
	switch denied := g.of.denied || refused && !g.of.seen; { // denied by a limit that is decided again, or by one that has no record
	case denied && g.of.left == 0, refused && g.of.left > 0:
		// The units of a refused request are refunded before its last group is decided: if the clock of the
		// node that denied is ahead, the group of that node comes late.
		p.schedule(g.of.taken)
		g.of.ahead, g.of.taken = append(g.of.ahead, g.of.taken...), nil
	case g.of.left == 0:
		for _, r := range g.of.ahead {
			_, _ = r.ask.Limiter.Debit(context.Background(), r.ask.Key, r.ask.Units)
		}
	}
}

// add adds an ask for a record that the node must decide again. For any other record, add itself records the
// result, or a note, or nothing if the AllowAll did not ask the limit and the replay denies it.
func (p *player) add(g *group, r *audit.Record) {
	denies := !r.Allowed && !r.Shadow
	l, rule, _ := p.set.Limit(r.Limit)
	g.of.seen = g.of.seen || denies
	note := noteOf(l, r)
	var made *weir.Limiter
	if note == "" {
		var err error
		if made, err = p.limiter(l, rule, r); err != nil {
			note = "of an override that does not fit the rules: ignored"
		}
	}
	if r.Source == unasked && g.of.denied {
		return
	}
	if note != "" {
		p.report.Notes[note]++
		g.of.denied = g.of.denied || denies && note != absent
		return
	}
	mode := p.set.Mode(rule)
	if mode == rules.Off {
		p.record(r, true)
		return
	}
	key := r.ID.String()
	if made.Limit().Scope != weir.Global {
		key = r.Region + " " + key // regions count separately
	}
	p.asks = append(p.asks, weir.Ask{Limiter: made, Key: key, Units: r.Units, Shadow: mode == rules.Shadow || mode != rules.Enforce && r.Shadow, Critical: r.Critical})
	p.asked = append(p.asked, r)
}

// decide sets the decisions of the asks. An error, such as that for units above the capacity, is a denial.
func (p *player) decide() {
	ctx, a := context.Background(), p.asks[0]
	d := weir.Decision{}
	switch operation := p.asked[0].Operation; {
	case operation == "debit" && len(p.asks) == 1:
		d, _ = a.Limiter.Debit(ctx, a.Key, a.Units)
	case operation == "at_most" && len(p.asks) == 1:
		d, _, _ = a.Limiter.AllowAtMost(ctx, a.Key, a.Units)
	default:
		p.decisions, _ = p.node.AllowAllInto(ctx, p.asks, p.decisions)
		return
	}
	p.decisions = append(p.decisions[:0], d)
}

// refund is a pending refund of the units of an Ask. If several nodes decide an AllowAll and one of them denies,
// the units that the other nodes have taken are refunded.
type refund struct {
	at  int64 // time of the refund in Unix nanoseconds
	ask weir.Ask
}

// schedule inserts refunds into the pending refunds, in the order of their times.
func (p *player) schedule(all []refund) {
	for _, r := range all {
		at, _ := slices.BinarySearchFunc(p.refunds, r, func(a, b refund) int { return cmp.Compare(a.at, b.at) })
		p.refunds = slices.Insert(p.refunds, at, r)
	}
}
