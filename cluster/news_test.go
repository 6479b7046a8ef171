package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

// A member that opens a connection sends its record before it pings. So a member whose tombstone exists
// receives the tombstone before it is connected to a member that has the tombstone.
func TestRecordArrivesBeforeFirstPong(t *testing.T) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		var happened lab.Text
		note := func(what string) { fmt.Fprintln(&happened, what) }
		var a *testPeer
		says := func(answer []byte) func(*peersConfig) {
			return func(c *peersConfig) {
				c.OwnRecord = func() []byte { return []byte("I serve") }
				c.HandleRecord = func(from string, news []byte) []byte {
					note(fmt.Sprintf("%s says %s, a is connected: %t", from, news, a.peer("b").(*link).connected.Load()))
					return answer
				}
			}
		}
		a = lo.peer(t, "a", &testHandler{answered: func() { note("a hears") }}, says(nil))
		b := lo.peer(t, "b", nil, says([]byte("you are buried")))
		a.set([]Member{b.member()})
		synctest.Wait()
		first := "a says I serve, a is connected: false\nb says you are buried, a is connected: false\na hears\n"
		require.Equal(t, first, happened.String())
		time.Sleep(100 * time.Millisecond) // no ping is sent in this time
		a.sendOwnRecord()
		synctest.Wait()
		require.Equal(t, first+"a says I serve, a is connected: true\nb says you are buried, a is connected: true\n", happened.String())
	})
}
