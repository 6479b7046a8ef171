package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// blackHoles is a network whose addresses accept all bytes and never answer.
type blackHoles struct {
	mu          sync.Mutex
	dials, most int
	tried       map[string]int
}

func (b *blackHoles) dial(ctx context.Context, addr string) (net.Conn, error) {
	b.mu.Lock()
	b.dials++
	b.tried[addr]++
	b.most = max(b.most, b.dials)
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	b.dials--
	b.mu.Unlock()
	return nil, ctx.Err()
}

func TestDialsOfUnmetMembersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holes := &blackHoles{tried: map[string]int{}}
		p := newPeers(peersConfig{Self: hello{Name: "a", Addr: "a"}, Dial: holes.dial}, &testHandler{})
		defer p.close()
		var members []Member
		for i := range 500 {
			members = append(members, Member{Name: fmt.Sprint("m", i), Addr: fmt.Sprint("m", i), State: Serving})
		}
		p.set(members)
		time.Sleep(time.Millisecond)
		for _, l := range p.links { // this node does not watch most of them
			l.use()
			l.post(eventWanted)
		}
		time.Sleep(8 * dialWait)
		synctest.Wait()
		require.Equal(t, maxUnmetDials, holes.most)
		require.Len(t, holes.tried, 500, "each has its turn")

		// A member that has connected to this node does not wait for its turn.
		waits := -1
		for i := range members {
			if p.links[fmt.Sprint("m", i)].session.Load() == nil && holes.tried[fmt.Sprint("m", i)] < 2 {
				waits = i
			}
		}
		name := fmt.Sprint("m", waits)
		before := holes.tried[name]
		p.recordCaller(hello{Name: name})
		time.Sleep(2 * dialPace)
		synctest.Wait()
		require.Greater(t, holes.tried[name], before)
		require.Equal(t, maxUnmetDials+1, holes.most)
	})
}
