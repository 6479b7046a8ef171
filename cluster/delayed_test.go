package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that is not scheduled neither writes nor reads, so the wait of an ask counts only the time in
// which the process runs.
func TestWaitOfAskCountsOnlyRunningTime(t *testing.T) {
	const wait, stood, response = 80 * time.Millisecond, 500 * time.Millisecond, 50 * time.Millisecond
	for _, c := range []struct {
		about   string
		answers bool
		late    bool // each look is late
		took    time.Duration
		err     error
	}{
		{"answered once it runs again", true, false, stood + response, nil},
		{"unanswered, after a quarter of the wait has passed", false, false, stood + wait*3/4, ErrTimeout},
		{"unanswered, in a process that is late for each look", false, true, 4 * stood, ErrTimeout},
	} {
		t.Run(c.about, func(t *testing.T) {
			inMemory(t, func(t *testing.T, lo *loopback) {
				runs := make(chan struct{})
				a := lo.peer(t, "a", nil)
				b := lo.peer(t, "b", handleEach(func(batch *Batch, i int, r []byte) {
					later, body := batch.Defer(i), string(r)
					go func() {
						<-runs
						time.Sleep(response)
						if c.answers {
							later([]byte(body))
						}
					}()
				}))
				a.set([]Member{b.member()})
				synctest.Wait()
				s := a.links["b"].session.Load()
				begun, done := time.Now(), make(chan error, 1)
				go func() {
					_, err := a.peer("b").Ask(context.Background(), []byte("x"), nil, wait)
					done <- err
				}()
				synctest.Wait()
				late := func() {
					s.out.mu.Lock()
					s.alarm.Stop()
					s.out.mu.Unlock()
					time.Sleep(stood)
					s.out.mu.Lock()
					s.look(time.Since(s.start))
					s.out.mu.Unlock()
				}
				late()
				close(runs)
				for range 10 {
					if c.late {
						synctest.Wait()
						if len(done) > 0 {
							break
						}
						late()
					}
				}
				require.ErrorIs(t, <-done, c.err)
				require.Equal(t, c.took, time.Since(begun).Truncate(time.Millisecond))
			})
		})
	}
}

// A newly connected member reports its scheduling delay with the first pong, before a request
// can be sent to it, and with each later pong.
func TestDelayIsReportedBeforeFirstRequest(t *testing.T) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		a, b := lo.peer(t, "a", nil), lo.peer(t, "b", nil)
		b.mu.Lock()
		now := time.Now()
		b.table.RecordCheck(now.Add(-300*time.Millisecond), now)
		b.mu.Unlock()
		a.set([]Member{b.member()})
		require.ErrorIs(t, askX(a.peer("b"), time.Second), ErrDisconnected)
		synctest.Wait()
		require.Equal(t, newFor, a.peer("b").Delay(), "a report over a new connection counts as at least newFor")
		require.NoError(t, askX(a.peer("b"), time.Second))
		time.Sleep(newFor + 2*pingPace)
		require.Equal(t, 300*time.Millisecond, a.peer("b").Delay())
		b.mu.Lock()
		b.table.RecordCheck(time.Now(), time.Now()) // the delay is forgotten by now
		b.mu.Unlock()
		time.Sleep(2 * pingPace)
		require.Zero(t, a.peer("b").Delay())
	})
}
