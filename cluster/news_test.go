package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A member that connects says who it is before it pings, and so learns what it does not
// know of itself before it hears anyone.
func TestNewsComesBeforeHearing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		net := new(memory)
		a := net.start("a", &testHandler{heard: func() { note("a hears") }}, nil)
		b := net.start("b", &testHandler{}, nil)
		a.cfg.Own = func() []byte { return []byte("I serve") }
		a.cfg.News = func(from string, news []byte) []byte {
			note(from + " says " + string(news))
			return nil
		}
		b.cfg.News = func(from string, news []byte) []byte {
			note(from + " says " + string(news))
			return []byte("you are buried")
		}
		defer b.close()
		defer a.close()
		a.set([]Member{{Name: "b", Addr: "b"}})
		require.Equal(t, []string{"a says I serve", "b says you are buried", "a hears"}, take())
		time.Sleep(100 * time.Millisecond) // no ping falls into this
		a.tell()
		require.Equal(t, []string{"a says I serve", "b says you are buried"}, take(), "and when it has something to say")
	})
}
