package weirtest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/weirtest"
)

func ExampleNetwork() {
	n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
	ctx := context.Background()

	server, packets, err := n.Host("server").Network().Listen(ctx, ":80")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	defer packets.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello from "+c.LocalAddr().String())
			_ = c.Close()
		}
	}()

	greet := func(patience time.Duration) {
		patient, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		c, err := n.Host("client").Network().Dial(patient, "server:80")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer c.Close()
		greeting, _ := io.ReadAll(c)
		fmt.Println(string(greeting))
	}
	greet(time.Minute)
	n.Cut("client", "server")
	greet(200 * time.Millisecond)
	n.Heal()
	greet(time.Minute)
	// Output:
	// hello from 10.0.0.1:80
	// dial tcp server:80: context deadline exceeded
	// hello from 10.0.0.1:80
}

const (
	second = time.Second
	milli  = time.Millisecond
)

// newStream returns the ends of a stream between hosts a and b.
func newStream(t *testing.T, n *weirtest.Network) (a, b net.Conn) {
	t.Helper()
	l, p, err := n.Host("b").Network().Listen(t.Context(), "b:0")
	require.NoError(t, err)
	defer l.Close()
	defer p.Close()
	a, err = n.Host("a").Network().Dial(t.Context(), l.Addr().String())
	require.NoError(t, err)
	b, err = l.Accept()
	require.NoError(t, err)
	return a, b
}

// elapsed returns the time since start, to the millisecond.
func elapsed(start time.Time) time.Duration { return time.Since(start).Round(milli) }

func TestStreamBehavesLikeTCP(t *testing.T) {
	link := weirtest.Link{Latency: 10 * milli}
	buf := make([]byte, 1<<20)
	for promise, check := range map[string]func(t *testing.T, n *weirtest.Network){
		"a dial takes a round trip, and bytes one latency": func(t *testing.T, n *weirtest.Network) {
			start := time.Now()
			a, b := newStream(t, n)
			require.Equal(t, 20*milli, elapsed(start))
			go a.Write([]byte("hi"))
			k, err := b.Read(buf)
			require.NoError(t, err)
			require.Equal(t, "hi", string(buf[:k]))
			require.Equal(t, 30*milli, elapsed(start))
			require.Equal(t, a.LocalAddr().String(), b.RemoteAddr().String())
			require.Equal(t, b.LocalAddr().String(), a.RemoteAddr().String())
		},
		"bytes arrive whole and in order over a bad link": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			n.SetLink("a", "b", weirtest.Link{Latency: milli, Jitter: 50 * milli, Loss: 0.3})
			sent := make([]byte, 1<<20)
			for i := range sent {
				sent[i] = byte(rand.Uint32())
			}
			go func() {
				for rest := sent; len(rest) > 0; {
					k := min(len(rest), 1+rand.IntN(20000))
					a.Write(rest[:k])
					rest = rest[k:]
				}
				a.Close()
			}()
			got, err := io.ReadAll(b)
			require.NoError(t, err)
			require.True(t, bytes.Equal(sent, got))
		},
		"a write blocks when the buffer is full, until its deadline": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			require.NoError(t, a.SetWriteDeadline(time.Now().Add(second)))
			start := time.Now()
			k, err := a.Write(buf)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Equal(t, second, elapsed(start))
			require.Equal(t, 256<<10, k)
			require.NoError(t, a.SetWriteDeadline(time.Now().Add(second)))
			k, err = a.Write(buf)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Zero(t, k, "nothing was read")
			require.NoError(t, a.SetWriteDeadline(time.Time{}))
			go io.Copy(io.Discard, b)
			_, err = a.Write(buf)
			require.NoError(t, err)
			require.NoError(t, b.Close())
		},
		"a read ends at its deadline, also one that is set meanwhile": func(t *testing.T, n *weirtest.Network) {
			a, _ := newStream(t, n)
			start := time.Now()
			time.AfterFunc(second, func() { a.SetReadDeadline(time.Now().Add(second)) })
			_, err := a.Read(buf)
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			require.True(t, timeout.Timeout())
			require.Equal(t, 2*second, elapsed(start))
		},
		"a cut holds bytes until they are resent after it has healed, in order": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			n.Cut("a", "b")
			start := time.Now()
			a.Write([]byte("one "))
			time.Sleep(75*second - milli)
			a.Write([]byte("two")) // still on its way when the link heals
			time.Sleep(milli)
			n.Heal()
			_, err := io.ReadFull(b, buf[:7])
			require.NoError(t, err)
			require.Equal(t, "one two", string(buf[:7]))
			require.Equal(t, 102200*milli+2*10*milli, elapsed(start), "resent after 0.2, 0.4, 0.8, ... s")
		},
		"a cut holds one direction only": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			n.Cut("a", "b")
			b.Write([]byte("x"))
			_, err := a.Read(buf)
			require.NoError(t, err)
		},
		"a dial into a cut ends with its context, or after 127 s": func(t *testing.T, n *weirtest.Network) {
			n.Cut("b", "a")
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), second)
			defer cancel()
			_, err := n.Host("a").Network().Dial(ctx, "b:1")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, second, elapsed(start))
			_, err = n.Host("a").Network().Dial(t.Context(), "b:1")
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Equal(t, 128*second, elapsed(start))
		},
		"a kill ends the dials of its host": func(t *testing.T, n *weirtest.Network) {
			n.Cut("a", "b")
			time.AfterFunc(second, n.Host("a").Kill)
			start := time.Now()
			_, err := n.Host("a").Network().Dial(t.Context(), "b:1")
			require.ErrorIs(t, err, net.ErrClosed)
			require.Equal(t, second, elapsed(start))
		},
		"a dial to a closed port is refused": func(t *testing.T, n *weirtest.Network) {
			n.Host("b")
			_, err := n.Host("a").Network().Dial(t.Context(), "b:1")
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			_, err = n.Host("a").Network().Dial(t.Context(), "10.9.9.9:1")
			require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		},
		"a freeze holds both directions until the thaw": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			start := time.Now()
			n.Host("b").Freeze()
			a.Write([]byte("x"))
			b.Write([]byte("y"))
			time.AfterFunc(second, n.Host("b").Thaw)
			_, err := a.Read(buf)
			require.NoError(t, err)
			_, err = b.Read(buf)
			require.NoError(t, err)
			require.Equal(t, second+10*milli, elapsed(start))
		},
		"a kill breaks streams after the sent data, and frees the port": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			old := n.Host("b").Network()
			b.Write([]byte("last"))
			n.Host("b").Kill()
			got, err := io.ReadAll(a)
			require.Equal(t, "last", string(got))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = a.Write([]byte("x"))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = b.Read(buf)
			require.ErrorIs(t, err, net.ErrClosed)
			_, _, err = old.Listen(t.Context(), ":1")
			require.ErrorIs(t, err, net.ErrClosed)
			_, _, err = n.Host("b").Network().Listen(t.Context(), ":1")
			require.NoError(t, err)
			_, _, err = n.Host("b").Network().Listen(t.Context(), ":1")
			require.ErrorIs(t, err, syscall.EADDRINUSE)
		},
		"data of a frozen host is lost if the host is killed": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			n.Host("b").Freeze()
			b.Write([]byte("never"))
			time.Sleep(second)
			n.Host("b").Kill()
			got, err := io.ReadAll(a)
			require.Empty(t, got)
			require.ErrorIs(t, err, syscall.ECONNRESET)
		},
		"a close ends reads with an end of file, and breaks writes": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			require.NoError(t, a.Close())
			require.ErrorIs(t, a.Close(), net.ErrClosed)
			_, err := b.Read(buf)
			require.Equal(t, io.EOF, err)
			_, err = b.Write([]byte("x"))
			require.ErrorIs(t, err, syscall.EPIPE)
		},
		"a closed listener ends Accept and breaks waiting streams": func(t *testing.T, n *weirtest.Network) {
			l, _, err := n.Host("b").Network().Listen(t.Context(), ":7")
			require.NoError(t, err)
			c, err := n.Host("a").Network().Dial(t.Context(), "b:7")
			require.NoError(t, err)
			time.AfterFunc(second, func() { l.Close() })
			_, err = c.Read(buf)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = l.Accept()
			require.ErrorIs(t, err, net.ErrClosed)
		},
		"a break ends a stream at both ends at once, and loses data on its way": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			_, err := a.Write([]byte("lost"))
			require.NoError(t, err)
			start := time.Now()
			n.Cut("b", "a")
			n.Break("a", "b")
			for _, end := range []net.Conn{a, b} {
				_, err = end.Read(buf)
				require.ErrorIs(t, err, syscall.ECONNRESET)
				_, err = end.Write(buf)
				require.ErrorIs(t, err, syscall.ECONNRESET)
				require.NoError(t, end.Close())
			}
			require.Zero(t, elapsed(start))
			n.Heal()
			a, b = newStream(t, n)
			_, err = a.Write([]byte("new"))
			require.NoError(t, err)
			k, err := b.Read(buf)
			require.NoError(t, err)
			require.Equal(t, "new", string(buf[:k]))
		},
		"a break ends a stream of which one end is closed": func(t *testing.T, n *weirtest.Network) {
			a, b := newStream(t, n)
			_, err := a.Write([]byte("lost"))
			require.NoError(t, err)
			require.NoError(t, a.Close())
			n.Break("b", "a")
			_, err = b.Read(buf)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			time.Sleep(second)
			_, err = b.Read(buf)
			require.ErrorIs(t, err, syscall.ECONNRESET)
		},
	} {
		t.Run(promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { check(t, weirtest.NewNetwork(1, link)) })
		})
	}
}

func TestDatagramsBehaveLikeUDP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := weirtest.NewNetwork(7, weirtest.Link{Latency: 10 * milli, Jitter: 10 * milli})
		_, a, err := n.Host("a").Network().Listen(t.Context(), ":5")
		require.NoError(t, err)
		_, b, err := n.Host("b").Network().Listen(t.Context(), ":5")
		require.NoError(t, err)
		receive := func() (numbers []byte) {
			buf := make([]byte, 10)
			for b.SetReadDeadline(time.Now().Add(second)); ; {
				k, from, err := b.ReadFrom(buf)
				if err != nil {
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
					return numbers
				}
				require.Equal(t, a.LocalAddr().String(), from.String())
				numbers = append(numbers, buf[:k]...)
			}
		}
		send := func() {
			for i := range 100 {
				_, err := a.WriteTo([]byte{byte(i)}, b.LocalAddr())
				require.NoError(t, err)
			}
		}
		sorted := func(numbers []byte) bool {
			return strings.Contains(string(numbers), string([]byte{0, 1, 2, 3, 4, 5, 6, 7}))
		}
		send()
		got := receive()
		require.Len(t, got, 100)
		require.False(t, sorted(got), "jitter reorders datagrams")

		n.Cut("a", "b")
		send()
		require.Empty(t, receive())
		n.Heal()
		require.Empty(t, receive(), "a cut loses datagrams")
		send()
		n.Cut("a", "b")
		require.Empty(t, receive(), "also those on their way")
		n.Heal()

		n.Host("b").Freeze()
		send()
		require.Empty(t, receive())
		n.Host("b").Thaw()
		require.Len(t, receive(), 100, "a freeze holds datagrams")

		n.SetLink("a", "b", weirtest.Link{Loss: 0.5})
		send()
		require.InDelta(t, 50, len(receive()), 25)

		n.SetLink("a", "b", weirtest.Link{Jitter: milli, Duplicates: 0.5})
		send()
		twice := receive()
		require.InDelta(t, 150, len(twice), 25)
		require.False(t, slices.IsSorted(twice), "jitter reorders")
		slices.Sort(twice)
		require.Len(t, slices.Compact(twice), 100)

		_, err = a.WriteTo(make([]byte, 65508), b.LocalAddr())
		require.ErrorIs(t, err, syscall.EMSGSIZE)
		require.NoError(t, b.Close())
		_, _, err = b.ReadFrom(nil)
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestNamesResolveToHosts(t *testing.T) {
	n := weirtest.NewNetwork(1, weirtest.Link{})
	n.Host("a")
	n.SetName("all.example", "a", "b")
	host := n.Host("c").Network()
	for name, want := range map[string][]string{
		"a":           {"10.0.0.1"},
		"10.0.0.2":    {"10.0.0.2"},
		"all.example": {"10.0.0.1", "10.0.0.2"},
	} {
		got, err := host.LookupHost(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := host.LookupHost(t.Context(), "unknown.example")
	var missing *net.DNSError
	require.ErrorAs(t, err, &missing)
	require.True(t, missing.IsNotFound)
}
