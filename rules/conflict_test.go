package rules

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// Tiers, overrides, overruns and reloaded files intentionally make limits of the same name and
// version with different numbers.
func TestNumbersOfRulesCauseNoLimitConflict(t *testing.T) {
	const file = `
version: 1
tiers:
  free: {}
  gold: {multiply: 5}
rules:
- {name: soft, key: user, soft: {over: 10%, for: 1m}, limit: {rate: 100, per: 1m}}
- {name: shadow, key: user, shadow: true, limit: {rate: 5, per: 1m, algorithm: token_bucket, burst: 9}}
- {name: world, key: user, scope: global, limit: {rate: 50, per: 1m, tiers: {gold: {rate: 70, per: 1h}}}}
- {name: daily, key: user, limit: {rate: 50, calendar: day}}
`
	synctest.Test(t, func(t *testing.T) {
		log := new(journal)
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{Config: weir.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		books := make(map[string]*Book)
		for _, name := range c.Names() {
			books[name], err = Static(c.Node(name), mustParse(t, file))
			require.NoError(t, err)
			defer books[name].Close()
		}
		load := func() {
			for range 10 {
				for name, b := range books {
					s := b.Current()
					var asks []weir.Ask
					for _, r := range s.Rules() {
						for i := range r.Limits {
							for _, tier := range s.Tiers() {
								count := s.Count(&r.Limits[i], tier, "ada")
								asks = append(asks, weir.Ask{Limiter: count.Limiter, Key: "ada", Shadow: r.Mode == Shadow})
								if count.Soft != nil {
									asks = append(asks, weir.Ask{Limiter: count.Soft, Key: "ada"})
								}
							}
						}
					}
					for _, one := range asks {
						_, err := c.Node(name).AllowAll(t.Context(), one)
						require.NoError(t, err)
					}
				}
				time.Sleep(time.Second)
			}
		}
		load()
		require.NoError(t, books["a"].Override("soft", "ada", Override{Rate: 7, Per: time.Hour}))
		load()
		c.Cut([]string{"a", "b"}, []string{"c"})
		load()
		c.Heal()
		for _, change := range []string{"rate: 60", "rate: 40"} {
			for _, b := range books {
				require.NoError(t, b.enforce(mustParse(t, strings.ReplaceAll(file, "rate: 50", change))))
			}
			load()
		}
		for _, b := range books {
			changed := strings.ReplaceAll(file, "version: 1", "version: 2")
			require.NoError(t, b.enforce(mustParse(t, strings.ReplaceAll(changed, "rate: 100, per: 1m", "rate: 100, per: 1m, algorithm: sliding_log"))))
		}
		load()
		for _, name := range c.Names() {
			require.Zero(t, c.Node(name).Stats().Conflicts, name)
		}
		require.False(t, log.contains("raise Version") || log.contains("Raise Version"))
	})
}
