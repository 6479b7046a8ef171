package page

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

// buffered is a connection that accepts all writes, as the buffers of a system do for a while if the
// peer does not read.
type buffered struct{ net.Conn }

func (b buffered) Write(p []byte) (int, error) { return len(p), nil }

// inBubble serves a page over pipes, and returns a function that sends a request over a new
// pipe.
func inBubble(t *testing.T, p *Page, configure func(*http.Server), wrap func(net.Conn) net.Conn) (ask func() net.Conn) {
	l := lab.ListenPipe()
	server := &http.Server{Handler: p}
	configure(server)
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return func() net.Conn {
		here := l.Dial(wrap)
		t.Cleanup(func() { here.Close() })
		_, err := here.Write([]byte("GET /events HTTP/1.1\r\nHost: page\r\n\r\n"))
		require.NoError(t, err)
		synctest.Wait()
		return here
	}
}

func (p *Page) viewerCount() int {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	return len(p.hub.viewers)
}

func TestViewersThatDoNotReadLosePlaces(t *testing.T) {
	for _, c := range []struct {
		name string
		wrap func(net.Conn) net.Conn
		then func(*testing.T, *Page)
	}{
		{"a write fails without buffers", nil, func(t *testing.T, p *Page) {
			time.Sleep(writeWithin + time.Second)
			require.Zero(t, p.viewerCount())
		}},
		{"later viewers replace them with buffers", func(c net.Conn) net.Conn { return buffered{c} }, func(t *testing.T, p *Page) {
			time.Sleep(placeFor - time.Second)
			_, err := p.join()
			require.ErrorIs(t, err, errFull, "nobody is sent away at once")
			time.Sleep(time.Second)
			var later []*viewer
			for range p.viewers {
				later = append(later, joined(t, p))
			}
			_, err = p.join()
			require.ErrorIs(t, err, errFull)
			require.Equal(t, later, p.hub.viewers)
			for _, v := range later {
				p.leave(v)
			}
		}},
		{"the time ends without other viewers", func(c net.Conn) net.Conn { return buffered{c} }, func(t *testing.T, p *Page) {
			time.Sleep(viewFor - time.Second)
			require.Equal(t, p.viewers, p.viewerCount())
			time.Sleep(2 * time.Second)
			require.Zero(t, p.viewerCount())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPage(t, Options{Source: &fake{}, Viewers: 3})
				ask := inBubble(t, p, func(*http.Server) {}, c.wrap)
				for range p.viewers {
					ask()
				}
				c.then(t, p)
			})
		})
	}
}

func TestEventsOutlastServerTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, Options{Source: &fake{}})
		ask := inBubble(t, p, func(s *http.Server) { s.ReadTimeout, s.WriteTimeout = 2*time.Second, 2*time.Second }, nil)
		conn := ask()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		snapshots := 0
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if strings.Contains(lines.Text(), "event: "+eventSnapshot) {
				snapshots++
			}
		}
		require.GreaterOrEqual(t, snapshots, 59)
	})
}
