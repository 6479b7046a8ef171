package weir

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
)

// crowd is a node's cluster of many, each of which takes a while to forget a count.
type crowd struct {
	cluster.Cluster
	handler cluster.Handler
	view    cluster.View
	forgets time.Duration

	mu                   sync.Mutex
	underWay, most, told int // resets now, at most at a time, and in all
}

func newCrowd(members int, forgets time.Duration) *crowd {
	c := &crowd{Cluster: cluster.NewSolo("m000", ""), forgets: forgets}
	all := make([]bool, members)
	for i := range members {
		m := cluster.Member{Name: fmt.Sprintf("m%03d", i), State: cluster.Serving, Announced: cluster.Serving}
		if i > 0 {
			m.Peer = c
		}
		all[i] = true
		c.view.Members = append(c.view.Members, m)
		c.view.Hears = append(c.view.Hears, all)
	}
	c.view.Direct = all
	return c
}

func (c *crowd) Start(_ context.Context, h cluster.Handler) error {
	c.handler = h
	return nil
}

func (c *crowd) View() *cluster.View { return &c.view }

func (c *crowd) Tell([]byte) {}

func (c *crowd) Ask(_ context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	c.handler.Heard()
	if op(request[0]) != opReset {
		return nil, cluster.ErrUnheard
	}
	c.count(1)
	defer c.count(-1)
	time.Sleep(min(wait, c.forgets))
	if wait < c.forgets {
		return nil, cluster.ErrTimeout
	}
	return new(result).append(appendAnswer(answer[:0], statusDone, 1)), nil
}

// count counts a reset that begins, or one that ends.
func (c *crowd) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underWay += n
	c.most = max(c.most, c.underWay)
	c.told += max(0, n)
}

// A reset is for every member, and the goroutines that it takes do not grow with them.
func TestAResetTellsABoundedNumberOfMembersAtATime(t *testing.T) {
	const members, forgets = 200, 5 * time.Millisecond
	for _, c := range []struct {
		about  string
		missed int
		cfg    Config
	}{
		{"who answers", 0, Config{Timeout: 2 * time.Second}},
		{"who answers too late", members - 1, Config{Timeout: forgets / 2}},
	} {
		t.Run(c.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crowd := newCrowd(members, forgets)
				c.cfg.Cluster, c.cfg.Logger, c.cfg.Replicas = crowd, quiet, -1
				n := solo(t, c.cfg)
				l := limiter(t, n, Limit{Rate: 1, Per: time.Hour})
				begun := time.Now()
				err := l.Reset(t.Context(), "key")
				require.LessOrEqual(t, time.Since(begun), members/resetsAtOnce*forgets+forgets)
				if c.missed == 0 {
					require.NoError(t, err)
				} else {
					var partial *ErrPartial
					require.ErrorAs(t, err, &partial)
					require.Len(t, partial.Members, c.missed)
				}
				require.Equal(t, members-1, crowd.told)
				require.LessOrEqual(t, crowd.most, resetsAtOnce)
			})
		})
	}
}
