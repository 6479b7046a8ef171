package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

// asWeirFiles is the environment variable with the limit of file descriptors for a test binary
// that TestMain runs as the command.
const asWeirFiles = "WEIR_TEST_FILES"

// limitFiles limits the file descriptors of this process to the number in asWeirFiles, if
// the variable is set.
func limitFiles() {
	if n, err := strconv.ParseUint(os.Getenv(asWeirFiles), 10, 64); err == nil {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			fmt.Fprintln(os.Stderr, "setrlimit:", err)
			os.Exit(bad)
		}
	}
}

// floodFrom dials from the address of flooding clients. Honest clients use 127.0.0.1.
var floodFrom = net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

const (
	http2Preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" // with empty settings
	halfPost      = "POST /v1/take HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{\"limit\":"
	halfHeader    = "GET /live HTTP/1.1\r\nHost: we"
	answersUnread = "GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n"
)

// flood is a set of connections to a port. The client of each connection sends the text of
// the field first, and then nothing. If the text is long, the client does not read either.
type flood struct {
	port, first string
}

var floods = []flood{
	{"checks", halfPost}, {"admin", halfPost}, {"health", halfPost},
	{"checks", ""}, {"health", halfHeader},
	{"envoy", ""}, {"envoy", http2Preface},
	{"health", strings.Repeat(answersUnread, 100)}, {"checks", strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: weir\r\n\r\n", 100)},
	{"bind", ""},
}

// floodPace is the greatest number of connections per second that all floods together open again, after
// they have opened all connections at once. The process needs CPU for each connection, which no bound on
// connections prevents.
const floodPace = 500

// keepOpen keeps a connection to addr open until ctx is done. If the connection is closed,
// keepOpen pauses, and then opens the next connection. keepOpen calls the function begun after its
// first attempt to connect.
func keepOpen(ctx context.Context, addr, first string, again time.Duration, begun func()) {
	for ctx.Err() == nil {
		conn, err := floodFrom.DialContext(ctx, "tcp", addr)
		begun()
		begun = func() {}
		if err == nil {
			end := context.AfterFunc(ctx, func() { conn.Close() })
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // the write may block if the responses are not read
			_, _ = io.WriteString(conn, first)
			if len(first) < 1000 {
				_, _ = io.Copy(io.Discard, conn)
			} else {
				for ctx.Err() == nil && !closedByPeer(conn) {
					time.Sleep(time.Second)
				}
			}
			end()
			conn.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// closedByPeer reports whether the peer has reset a connection, as Weir does if a response is not read. It reads
// nothing.
func closedByPeer(conn net.Conn) bool {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	closed := false
	err = raw.Control(func(fd uintptr) {
		info, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		closed = err != nil || info != 0
	})
	return err != nil || closed
}

// honest is a client that sends requests repeatedly, and records their durations and
// errors.
type honest struct {
	name   string
	ask    func(ctx context.Context) error
	took   []time.Duration
	failed []error
}

func (h *honest) goOn(ctx context.Context) {
	for {
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventually)
		begun := time.Now()
		if err := h.ask(asked); err != nil {
			h.failed = append(h.failed, err)
		}
		h.took = append(h.took, time.Since(begun))
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// askAll lets all clients send requests while do runs, and returns the p99 of each
// client.
func askAll(ctx context.Context, clients []*honest, do func()) (p99 []time.Duration) {
	asking, enough := context.WithCancel(ctx)
	var asked sync.WaitGroup
	for _, h := range clients {
		h.took = h.took[:0]
		asked.Go(func() { h.goOn(asking) })
	}
	do()
	enough()
	asked.Wait()
	for _, h := range clients {
		slices.Sort(h.took)
		p99 = append(p99, h.took[len(h.took)*99/100].Round(10*time.Microsecond))
	}
	return p99
}

// askHTTP returns a function that sends a request on a new connection, or on a kept
// connection.
func askHTTP(method, url, token, body string, kept bool) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: !kept}}
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		a, err := client.Do(r)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		if a.StatusCode != http.StatusOK {
			return errors.New(a.Status)
		}
		_, err = io.Copy(io.Discard, a.Body)
		return err
	}
}

// honestClients returns clients for every port of p, except that for other members.
func honestClients(t *testing.T, p *process) []*honest {
	at := func(name, path string) string { return "http://" + p.addrs[name] + path }
	const take = `{"limit":"api/hourly","key":"honest"}`
	conn, err := grpc.NewClient(p.addrs["envoy"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return []*honest{
		{name: "/live", ask: askHTTP(http.MethodGet, at("health", "/live"), "", "", false)},
		{name: "checks, new connections", ask: askHTTP(http.MethodPost, at("checks", "/v1/take"), checksToken, take, false)},
		{name: "checks, a kept connection", ask: askHTTP(http.MethodPost, at("checks", "/v1/take"), checksToken, take, true)},
		{name: "admin", ask: askHTTP(http.MethodGet, at("admin", "/v1/members"), adminToken, "", false)},
		{name: "Envoy", ask: func(ctx context.Context) error {
			_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, envoyRequest("honest"))
			return err
		}},
	}
}

// Every port has stalled connections at the same time. The flooding clients reopen closed
// connections. Meanwhile every port responds, and a further node joins. With WEIR_FULL=1 the
// test prints the figures of THREATS.md.
func TestFloodsLeaveRoomForProbesPeersAndChecks(t *testing.T) {
	sizes := []struct{ files, few, all int }{{256, 20, 400}, {65536, 20, 1200}}
	for _, c := range sizes[:testenv.PickFull(t, 1, 2)] {
		t.Run(fmt.Sprint(c.files), func(t *testing.T) {
			t.Parallel()
			var limit syscall.Rlimit
			require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
			if uint64(c.files) > limit.Max {
				t.Logf("%d files, as a process may have no more open here", limit.Max)
				c.files = int(limit.Max)
			}
			each := testenv.PickFull(t, c.few, c.all) // connections for each kind of flood
			dir := folder(t)
			p := startWith(t, dir, func(p *process) { p.Env = append(p.Env, fmt.Sprint(asWeirFiles, "=", c.files)) }, "-name", "flooded")
			waitReady(t, p)
			bound := p.addr(t)
			before := lab.Resident(p.Process.Pid)
			clients, moments := honestClients(t, p), testenv.PickFull(t, 10, 500)
			calm := askAll(t.Context(), clients, func() { time.Sleep(time.Duration(moments) * 10 * time.Millisecond) })

			again := time.Duration(each*len(floods)) * time.Second / floodPace
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			var begun atomic.Int64
			coming := askAll(ctx, clients, func() {
				for _, f := range floods {
					addr := p.addrs[f.port]
					if f.port == "bind" {
						addr = bound
					}
					for range each {
						running.Go(func() { keepOpen(ctx, addr, f.first, again, func() { begun.Add(1) }) })
					}
				}
				wait(t, func() bool { return int(begun.Load()) == each*len(floods) }, "the flood has come")
			})

			resident, files, joined := int64(0), int64(0), time.Duration(0)
			flooded := askAll(ctx, clients, func() {
				begun := time.Now()
				late := start(t, dir, "-name", "late", "-join", bound)
				wait(t, func() bool {
					members, _ := late.members()
					return len(members) == 2 && late.ready()
				}, "another node joins")
				joined = time.Since(begun)
				for range moments {
					resident, files = max(resident, lab.Resident(p.Process.Pid)), max(files, lab.OpenFiles(p.Process.Pid))
					time.Sleep(10 * time.Millisecond)
				}
			})
			t.Logf("%d connections of each kind, %d files: RSS %d -> %d MB, at most %d files open, another joins in %v", each, c.files, before>>20, resident>>20, files, joined.Round(time.Millisecond))
			for i, h := range clients {
				t.Logf("%s: p99 %v, %v while the flood comes, %v while it stays", h.name, calm[i], coming[i], flooded[i])
				require.Empty(t, h.failed, h.name)
			}
			require.Less(t, files, int64(c.files*7/8), "files are left")
			require.Less(t, resident-before, int64(150<<20))
		})
	}
}
