package audit_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
)

// blind is an Observer that looks at nothing: what having one costs.
type blind struct{}

func (blind) Decided(context.Context, weir.DecisionEvent) {}
func (blind) Hopped(context.Context, weir.HopEvent)       {}

// A check that this node owns, without an observer, with one, and with a Log.
func BenchmarkCheck(b *testing.B) {
	observers := []struct {
		name string
		make func() weir.Observer
	}{
		{"none", func() weir.Observer { return nil }},
		{"blind", func() weir.Observer { return blind{} }},
		{"denials", func() weir.Observer { return newLog(b, audit.Options{}) }},
		{"hung", func() weir.Observer {
			return newLog(b, audit.Options{Timeout: time.Hour}, func(ctx context.Context) { <-ctx.Done() })
		}},
		{"sample=0.01", func() weir.Observer { return newLog(b, audit.Options{Sample: 0.01}) }},
		{"sample=1", func() weir.Observer { return newLog(b, audit.Options{Sample: 1}) }},
	}
	for _, outcome := range []struct {
		name string
		rate int64
	}{{"allowed", 1e12}, {"denied", 1}} {
		for _, o := range observers {
			b.Run(outcome.name+"/"+o.name, func(b *testing.B) {
				observer := o.make()
				n, err := weir.Start(b.Context(), weir.Config{Observer: observer})
				if err != nil {
					b.Fatal(err)
				}
				defer n.Close()
				l, err := n.Limiter(weir.Limit{Name: "test", Algorithm: weir.FixedWindow, Rate: outcome.rate, Per: 24 * time.Hour})
				if err != nil {
					b.Fatal(err)
				}
				ctx := b.Context()
				_, _ = l.Allow(ctx, "203.0.113.7")
				b.ReportAllocs()
				for b.Loop() {
					_, _ = l.Allow(ctx, "203.0.113.7")
				}
				if log, is := observer.(*audit.Log); is {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					_ = log.Close(ctx)
					cancel()
					s := log.Stats()
					b.ReportMetric(float64(s.Dropped)/float64(max(1, s.Dropped+s.Written)), "dropped")
				}
			})
		}
	}
}

// newLog is a Log whose records go nowhere, and at once unless something is in the way.
func newLog(b *testing.B, o audit.Options, obstacle ...func(ctx context.Context)) *audit.Log {
	o.Logger = slog.New(slog.DiscardHandler)
	l, err := audit.New(nowhere(obstacle), o)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

type nowhere []func(ctx context.Context)

func (n nowhere) Write(ctx context.Context, batch []audit.Record) (int, error) {
	for _, obstacle := range n {
		obstacle(ctx)
	}
	return len(batch), nil
}
