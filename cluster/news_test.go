package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A member that opens a connection sends its record before it pings. So it receives its own tombstone
// before it is connected to any member.
func TestRecordArrivesBeforeFirstPong(t *testing.T) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		var mu sync.Mutex
		var happened []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			happened = append(happened, what)
		}
		take := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			got := happened
			happened = nil
			return got
		}
		says := func(answer []byte) func(*peersConfig) {
			return func(c *peersConfig) {
				c.OwnRecord = func() []byte { return []byte("I serve") }
				c.HandleRecord = func(from string, news []byte) []byte {
					note(from + " says " + string(news))
					return answer
				}
			}
		}
		a := lo.peer(t, "a", &testHandler{heard: func() { note("a hears") }}, says(nil))
		b := lo.peer(t, "b", nil, says([]byte("you are buried")))
		a.set([]Member{b.member()})
		require.Equal(t, []string{"a says I serve", "b says you are buried", "a hears"}, take())
		time.Sleep(100 * time.Millisecond) // no ping falls into this
		a.sendOwnRecord()
		require.Equal(t, []string{"a says I serve", "b says you are buried"}, take(), "and when it has something to say")
	})
}
