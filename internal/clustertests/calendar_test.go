package clustertests

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// calendarWorld is a world of three nodes. The clocks of the nodes differ by a constant. The test
// moves all clocks at the same time, because it would take too long to wait for whole days.
type calendarWorld struct {
	*world
	zone  *time.Location
	ahead atomic.Int64 // offset of all clocks in nanoseconds, without the skew of each node
}

func newCalendarWorld(t *testing.T, skew time.Duration) *calendarWorld {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	c := &calendarWorld{zone: berlin}
	c.world = emptyWorld(hosts(3), false)
	c.jump(2026, time.March, 28, 12, 0)
	for i, name := range c.names {
		skew := skew * time.Duration(i-1)
		c.start(t, name, weir.Config{Now: func() time.Time { return c.currentTime().Add(skew) }})
	}
	c.ready(t, c.names...)
	return c
}

func (c *calendarWorld) currentTime() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *calendarWorld) jump(year int, month time.Month, day, hour, minute int) {
	c.ahead.Store(int64(time.Until(time.Date(year, month, day, hour, minute, 0, 0, c.zone))))
}

var daily = weir.Limit{Name: "daily", Algorithm: weir.FixedWindow, Rate: 50, Calendar: weir.Day, Zone: "Europe/Berlin"}

// All nodes send checks before and after each of three midnights. One of the days has 23 hours.
func TestDayAdmitsItsLimitOnceWithSkewedClocks(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, 3 * time.Second, 20 * time.Second} {
		t.Run(skew.String(), func(t *testing.T) {
			if skew == 0 {
				testenv.SkipUnlessFull(t, "the clocks that differ")
			}
			inBubble(t, func(t *testing.T) {
				c := newCalendarWorld(t, skew)
				ls := c.limiters(t, daily)
				const keys = 5
				var admitted [keys]int
				for day := range 3 {
					c.jump(2026, time.March, 28+day, 23, 59)
					for range 90 {
						for i := range c.names {
							for k := range admitted {
								d := allowed(t, ls[c.names[(i+k)%len(c.names)]], string(rune('a'+k)), 1)
								require.LessOrEqual(t, d.Source, weir.Forwarded)
								if d.Allowed {
									admitted[k]++
								}
							}
						}
						time.Sleep(time.Second)
					}
					for k := range admitted {
						require.Equal(t, 50*(day+2), admitted[k], "key %d at %v: one limit for each day", k, c.currentTime())
					}
				}
			})
		})
	}
}

func TestCountOfDayOutlivesItsOwner(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCalendarWorld(t, 3*time.Second)
		ls := c.limiters(t, daily)
		owner := ls["a"].Owner("key").Name[:1]
		var asker *weir.Limiter
		for _, name := range c.names {
			if name != owner {
				asker = ls[name]
			}
		}
		denied := func() {
			d := allowed(t, asker, "key", 1)
			require.False(t, d.Allowed, "at %v", c.currentTime())
			require.InDelta(t, time.Until(time.Date(2026, time.March, 29, 0, 0, 0, 0, c.zone))-time.Duration(c.ahead.Load()), d.RetryAfter, float64(6*time.Second))
		}
		for range 50 {
			d := allowed(t, asker, "key", 1)
			require.True(t, d.Allowed)
		}
		time.Sleep(time.Second)
		c.network.Host(owner).Kill()
		for killed := time.Now(); time.Since(killed) < forget+time.Minute; { // the stand-in answers until the owner is forgotten, and then the next owner answers
			denied()
			time.Sleep(time.Second)
		}
		c.jump(2026, time.March, 28, 23, 59)
		denied()
		c.jump(2026, time.March, 29, 0, 1)
		d := allowed(t, asker, "key", 1)
		require.True(t, d.Allowed)
		require.EqualValues(t, 49, d.Remaining)
		require.InDelta(t, 23*time.Hour-time.Minute, d.ResetAfter, float64(6*time.Second))
	})
}
