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
	node     *weir.Node
	now      atomic.Int64
	set      *rules.Set
	report   *Report
	limits   map[string]*limit
	limiters map[weir.Limit]*weir.Limiter

	refunds   []*refund // ordered by time
	asks      []weir.Ask
	asked     []*audit.Record // the record of each ask
	decisions weir.Decisions
}

// limit is a limit of the rules with its results.
type limit struct {
	*rules.Limit
	rule    *rules.Rule
	minute  int64        // of inForce
	factor  int64        // of inForce
	inForce *rules.Limit // Limit with the numbers of a minute's open time windows, multiplied by a factor
	results Limit
}

const (
	absent      = "of a limit that the rules do not have, or of an overrun: ignored"
	maxKeys     = 10_000_000 // counts of the node
	maxLimiters = 4096
)

func newPlayer(ctx context.Context, set *rules.Set, report *Report) (*player, error) {
	p := &player{set: set, report: report, limits: make(map[string]*limit), limiters: make(map[weir.Limit]*weir.Limiter)}
	for _, rule := range set.Rules() {
		for i := range rule.Limits {
			l := &rule.Limits[i]
			p.limits[l.Name] = &limit{Limit: l, rule: rule, minute: -1, results: Limit{Name: l.Name, changed: make(map[audit.ID]*Key)}}
		}
	}
	var err error
	p.node, err = weir.Start(ctx, weir.Config{
		Now: func() time.Time { return time.Unix(0, p.now.Load()) }, MaxKeys: maxKeys, TopKeys: -1, Logger: slog.New(slog.DiscardHandler),
	})
	return p, err
}

// limiter returns the Limiter for a record, with the numbers for its key, tier and time.
func (p *player) limiter(l *limit, r *audit.Record) (made *weir.Limiter, err error) {
	factor := int64(100)
	if r.Factor > 0 && l.rule.Adapt != nil {
		factor = r.Factor
	}
	asked := r.Time.Add(-time.Duration(r.TookUS) * time.Microsecond) // by the clock of the node whose rules apply
	if minute := asked.Unix() / 60; minute != l.minute || factor != l.factor {
		l.minute, l.factor, l.inForce = minute, factor, l.At(asked).Scaled(factor)
	}
	numbers := l.inForce.ForKey(r.Tier, r.Key)
	if r.Overridden {
		numbers.Rate, numbers.Burst, numbers.Keep = r.Rate, r.Burst, r.Keep
		if per, err := time.ParseDuration(r.Per); err == nil {
			numbers.Per = per
		}
	}
	numbers.Varies, numbers.Ban = true, weir.Ban{}
	if made = p.limiters[numbers]; made == nil {
		if made, err = p.node.Limiter(numbers); err != nil {
			return nil, err
		}
		if len(p.limiters) == maxLimiters {
			clear(p.limiters)
		}
		p.limiters[numbers] = made
	}
	if r.Critical {
		made = made.Critical()
	}
	return made, nil
}

// noteOf returns why a record is not decided again, or "".
func noteOf(l *limit, r *audit.Record) string {
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

// play decides a group again.
func (p *player) play(g *group) {
	for len(p.refunds) > 0 && p.refunds[0].at <= g.at {
		p.refund(p.refunds[0])
		p.refunds = p.refunds[1:]
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
	took := p.decisions.Allowed() // all units of the group, or none
	for i, r := range p.asked {
		d := &p.decisions[i]
		p.limits[r.Limit].results.record(r, d.Allowed, p.report)
		g.of.denied = g.of.denied || !d.Allowed && !p.asks[i].Shadow
		if d.Allowed && r.Request != 0 && took {
			g.of.taken = append(g.of.taken, &refund{g.at + r.TookUS*int64(time.Microsecond), p.asks[i]})
		}
	}
	refused := g.parts[0].Refused
	switch denied := g.of.denied || refused && !g.of.seen; { // by a limit that is decided again, or that has no record
	case denied && g.of.left == 0, refused && g.of.left > 0:
		// A request that was denied is refunded ahead, because the clock of the node that denies it may be behind.
		p.schedule(g.of.taken)
		g.of.ahead, g.of.taken = append(g.of.ahead, g.of.taken...), nil
	case g.of.left == 0:
		for _, r := range g.of.ahead {
			_, _ = r.ask.Limiter.Debit(context.Background(), r.ask.Key, r.ask.Units)
		}
	}
}

// add adds a record to the asks, unless it is not decided again.
func (p *player) add(g *group, r *audit.Record) {
	l, denies := p.limits[r.Limit], !r.Allowed && !r.Shadow
	g.of.seen = g.of.seen || denies
	note := noteOf(l, r)
	var made *weir.Limiter
	if note == "" {
		var err error
		if made, err = p.limiter(l, r); err != nil {
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
	mode := p.set.Mode(l.rule)
	if mode == rules.Off {
		l.results.record(r, true, p.report)
		return
	}
	key := r.ID.String()
	if made.Limit().Scope != weir.Global {
		key = r.Region + " " + key // regions count separately
	}
	p.asks = append(p.asks, weir.Ask{Limiter: made, Key: key, Units: r.Units, Shadow: mode == rules.Shadow || mode != rules.Enforce && r.Shadow, Critical: r.Critical})
	p.asked = append(p.asked, r)
}

// decide sets the decisions of the asks. An error, such as of units above the capacity, is a denial.
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

// refund is units of an AllowAll. Several nodes decide it by takes, and refund them if one denies.
type refund struct {
	at  int64
	ask weir.Ask
}

// schedule adds refunds to those that are due.
func (p *player) schedule(all []*refund) {
	for _, r := range all {
		at, _ := slices.BinarySearchFunc(p.refunds, r, func(a, b *refund) int { return cmp.Compare(a.at, b.at) })
		p.refunds = slices.Insert(p.refunds, at, r)
	}
}

func (p *player) refund(r *refund) {
	p.now.Store(r.at)
	_ = r.ask.Limiter.Refund(context.Background(), r.ask.Key, r.ask.Units)
}
