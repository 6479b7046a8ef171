package audit_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
)

// nowhere is a Sink that discards its records.
type nowhere struct{}

func (nowhere) Write(_ context.Context, batch []audit.Record) (int, error) { return len(batch), nil }

// BenchmarkCheck measures the durations in the table of README.md: a check of a key that this node
// owns, without an Observer and with a Log.
func BenchmarkCheck(b *testing.B) {
	quiet := slog.New(slog.DiscardHandler)
	for outcome, rate := range map[string]int64{"allowed": 1e12, "denied": 1} {
		for about, o := range map[string]*audit.Options{"none": nil, "denials": {Logger: quiet}, "sample=1": {Logger: quiet, Sample: 1}} {
			b.Run(outcome+"/"+about, func(b *testing.B) {
				var cfg weir.Config
				if o != nil {
					log, err := audit.New(nowhere{}, *o)
					require.NoError(b, err)
					b.Cleanup(func() { require.NoError(b, log.Close(context.Background())) })
					cfg.Observer = log
				}
				n, err := weir.Start(b.Context(), cfg)
				require.NoError(b, err)
				defer n.Close()
				l, err := n.Limiter(weir.Limit{Name: "test", Algorithm: weir.FixedWindow, Rate: rate, Per: 24 * time.Hour})
				require.NoError(b, err)
				ctx := b.Context()
				b.ReportAllocs()
				for b.Loop() {
					_, _ = l.Allow(ctx, "203.0.113.7")
				}
			})
		}
	}
}
