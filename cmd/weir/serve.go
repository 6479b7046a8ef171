package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
	"github.com/weir-go/weir/cmd/weir/internal/ports"
	"github.com/weir-go/weir/cmd/weir/internal/sockets"
	envoylimit "github.com/weir-go/weir/contrib/envoy"
	weirprom "github.com/weir-go/weir/contrib/prometheus"
	"github.com/weir-go/weir/internal/conns"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/page"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/snapshot"
)

// serveCommand runs a node until SIGTERM or SIGINT, and then leaves in order. If it receives a
// second signal, it aborts the leave.
type serveCommand struct{ serveOptions }

func (o *serveCommand) run(_, stderr io.Writer) (int, error) {
	handler := slog.Handler(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.LogLevel}))
	if o.LogFormat == "json" {
		handler = slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: o.LogLevel})
	}
	log := slog.New(handler)
	// Without Ignore, SIGHUP would end the process. openAudit handles SIGHUP if there is an audit file.
	// Rules need no signal, because they are read again whenever they change.
	signal.Ignore(syscall.SIGHUP)
	ends := make(chan os.Signal, 2)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	atOnce, endAtOnce := context.WithCancel(context.Background())
	defer endAtOnce()
	ctx, leave := context.WithCancel(atOnce)
	go func() {
		defer endAtOnce()
		for _, told := range []func(){leave, func() {
			signal.Stop(ends) // a third signal ends the process itself
		}} {
			select {
			case <-ends:
				told()
			case <-atOnce.Done():
				return
			}
		}
	}()
	return ok, runServe(ctx, atOnce, &o.serveOptions, log)
}

// served represents a node that is running, and its ports.
type served struct {
	node   *weir.Node
	budget *ports.Budget
	addrs  map[string]string // keyed by the name of the flag

	leaving atomic.Bool // the leave has begun, so that the node is not ready
	drain   func()      // sets the health of the Envoy port to NOT_SERVING

	web    []*ports.Port               // the HTTP ports
	stops  []func(ctx context.Context) // called in order; each waits for pending requests until ctx is done
	failed chan error
}

// startWithin bounds how long a start waits for members and for snapshots. After that the
// node serves, so that probes get a response, but the node is not ready while it still
// waits.
const startWithin = 20 * time.Second

// The parts of -leave_within at which each phase of the leave ends. After restPart, the
// node no longer waits for HTTP connections that were just used. After leavePart, Leave
// is aborted. After answerPart, pending requests are aborted. The rest is for the audit
// log.
const (
	restPart   = 0.1
	leavePart  = 0.8
	answerPart = 0.95
)

// runServe serves until ctx is done, and then leaves. Once atOnce is done, it ends
// immediately. If a port fails, it returns the error without leaving.
func runServe(ctx, atOnce context.Context, o *serveOptions, log *slog.Logger) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.Logger = log
	identity.WarnOfReaders(log, o.secretFiles()...)
	var leaveBy time.Time // the deadline of the leave; zero before the leave
	var denials *auditLog
	if o.Audit != "" {
		if denials, err = openAudit(o.auditFlags, log); err != nil {
			return err
		}
		defer func() {
			by := time.Now().Add(auditEnd)
			if !leaveBy.IsZero() && leaveBy.Before(by) {
				by = leaveBy
			}
			ctx, cancel := context.WithDeadline(context.Background(), by)
			defer cancel()
			err = errors.Join(err, denials.close(ctx))
		}()
		cfg.Observer = denials.Log
	}
	if o.Snapshots != "" {
		store, release, failed := openSnapshots(o.Snapshots)
		if failed != nil {
			return fmt.Errorf("weir serve: -snapshots: %w", failed)
		}
		defer func() { err = errors.Join(err, release()) }()
		cfg.Snapshots = store
	}
	if err := cfg.Validate(); err != nil {
		return inFlags(err)
	}
	starting, started := context.WithTimeout(ctx, startWithin)
	node, err := weir.Start(starting, cfg)
	started()
	if err != nil {
		return inFlags(err)
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	var book *rules.Book
	if o.Rules != "" {
		if book, err = o.openBook(ctx, node, log); err != nil {
			return err
		}
		defer book.Close()
	}
	s := &served{node: node, budget: ports.NewBudget(conns.OpenFiles(), log), addrs: make(map[string]string), drain: func() {}, failed: make(chan error, 8)}
	defer func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		s.end(over) // aborts pending requests
	}()
	// The ports are also stopped in this order, so that the health port is the last to stop.
	for _, open := range []func() error{
		func() error { return s.checks(o, book, log) },
		func() error { return s.envoy(ctx, o, book, log) },
		func() error { return s.admin(o, book, log) },
		func() error { return s.health(o, book, denials, log) },
	} {
		if err := open(); err != nil {
			return err
		}
	}
	log.Info("the node serves requests", "checks", s.addrs["checks"], "admin", s.addrs["admin"], "health", s.addrs["health"], "envoy", s.addrs["envoy"])
	if o.ready != nil {
		o.ready(s)
	}
	select {
	case err := <-s.failed:
		return err
	case <-ctx.Done():
	}
	s.leaving.Store(true)
	s.drain()
	log.Info("the node is leaving the cluster", "within", o.LeaveWithin.String())
	now, part := time.Now(), func(part float64) time.Duration { return time.Duration(part * float64(o.LeaveWithin)) }
	leaveBy = now.Add(o.LeaveWithin)
	ctx, cancel := context.WithDeadline(atOnce, now.Add(part(answerPart)))
	defer cancel()
	leave, left := context.WithDeadline(ctx, now.Add(part(leavePart)))
	defer left()
	// Respond to clients once more before Leave, because a node that has left has no
	// authority.
	rest, rested := context.WithDeadline(ctx, now.Add(part(restPart)))
	defer rested()
	var resting sync.WaitGroup
	for _, port := range s.web {
		resting.Go(func() { port.DrainConnections(rest) })
	}
	resting.Wait()
	// The node still responds to requests while Leave transfers its counts to other members.
	err = node.Leave(leave)
	if err != nil && leave.Err() != nil && atOnce.Err() == nil {
		err = fmt.Errorf("weir serve: -leave_within (%s) is %v, but the node had not left after %v: set a longer time: %w", variable("leave_within"), o.LeaveWithin, part(leavePart), err)
	}
	s.end(ctx)
	if atOnce.Err() != nil {
		err = errors.Join(err, errors.New("weir serve: ended by a second signal: work in progress was cut off, and counts that no other node has are lost"))
	}
	return err
}

// closeDirectory closes the snapshot directory. If the disk hangs, closeDirectory gives up after a second,
// because the end of the process also releases the directory.
func closeDirectory(dir *snapshot.Dir) error {
	closed := make(chan error, 1)
	go func() { closed <- dir.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(time.Second):
		return errors.New("weir serve: -snapshots: the disk does not answer, so the directory was not closed")
	}
}

// end stops all ports, once.
func (s *served) end(ctx context.Context) {
	for _, stop := range s.stops {
		stop(ctx)
	}
	s.stops = nil
}

const unixPrefix = "unix:"

// listen listens at host:port, or at unix:/path, to which only this user and the group of
// the socket can connect.
func (s *served) listen(name, addr string) (l net.Listener, err error) {
	if path, isUnix := strings.CutPrefix(addr, unixPrefix); isUnix {
		l, err = sockets.Listen(path, 0o660)
	} else {
		l, err = net.Listen("tcp", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("weir serve: -%s: %w", name, err)
	}
	s.addrs[name] = l.Addr().String()
	return l, nil
}

// checks serves the check API.
func (s *served) checks(o *serveOptions, book *rules.Book, log *slog.Logger) error {
	if o.Checks == "" {
		return nil
	}
	mutual := o.HTTPTLS.CA != ""
	tokens, err := readTokens(o.ChecksTokens)
	if err != nil {
		return inFlag("checks_tokens", err)
	}
	checks, err := admin.CheckHandler(s.node, book, admin.CheckOptions{Tokens: tokens, MutualTLS: mutual, Open: tokens == nil && !mutual, Usage: (*admin.UsageFields)(o.Usage), Logger: log})
	if err != nil {
		return err
	}
	return s.handle("checks", o.Checks, s.budget.Clients, o.HTTPTLS.files, checks, log)
}

// admin serves the admin API and the page.
func (s *served) admin(o *serveOptions, book *rules.Book, log *slog.Logger) error {
	mutual := o.HTTPTLS.CA != ""
	if o.Admin == "" || o.AdminTokens == "" && !mutual {
		return nil
	}
	tokens, err := readTokens(o.AdminTokens)
	if err != nil {
		return inFlag("admin_tokens", err)
	}
	shown, err := page.New(page.Options{Source: &page.Node{Node: s.node, Book: book}, Book: book})
	if err != nil {
		return err
	}
	// The server cannot stop until the streams to viewers are closed.
	s.stops = append(s.stops, func(context.Context) { _ = shown.Close() })
	api, err := admin.Handler(s.node, book, admin.Options{Tokens: tokens, MutualTLS: mutual, Page: shown, Logger: log})
	if err != nil {
		return err
	}
	return s.handle("admin", o.Admin, s.budget.Clients, o.HTTPTLS.files, api, log)
}

// health serves the liveness and readiness of the node, and its metrics, over HTTP.
func (s *served) health(o *serveOptions, book *rules.Book, denials *auditLog, log *slog.Logger) error {
	if o.Health == "" {
		return nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(weirprom.New(s.node, book), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if denials != nil {
		registry.MustRegister(denials.metrics()...)
	}
	health := http.NewServeMux()
	ready := admin.Readiness(s.node)
	health.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		if s.leaving.Load() {
			http.Error(w, "not ready: the node is leaving", http.StatusServiceUnavailable)
			return
		}
		ready.ServeHTTP(w, r)
	})
	health.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	health.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	return s.handle("health", o.Health, s.budget.Probes, files{}, health, log)
}

// handle serves HTTP on a port that newPort creates, with TLS if there is a certificate.
func (s *served) handle(name, addr string, newPort func(net.Listener, string) *ports.Port, web files, h http.Handler, log *slog.Logger) error {
	secure := func(l net.Listener) net.Listener { return l }
	if web.Cert != "" {
		config, err := web.server()
		if err != nil {
			return inFlag("http_tls", err)
		}
		secure = func(l net.Listener) net.Listener { return tls.NewListener(l, config) }
	}
	l, err := s.listen(name, addr)
	if err != nil {
		return err
	}
	port := newPort(l, name)
	s.web = append(s.web, port)
	l = secure(port)
	server := ports.NewWeb(h, slog.NewLogLogger(log.Handler(), slog.LevelDebug))
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("weir serve: -%s: %w", name, err)
		}
	}()
	s.stops = append(s.stops, func(ctx context.Context) {
		if port.Shutdown(ctx, server) != nil {
			_ = server.Close()
		}
	})
	return nil
}

// silence is the idle time after which a management server is pinged, and the time within which it
// must answer the ping.
const silence = 30 * time.Second

// envoy serves Envoy's rate limit protocol.
func (s *served) envoy(ctx context.Context, o *serveOptions, book *rules.Book, log *slog.Logger) error {
	if o.Envoy == "" {
		return nil
	}
	cfg := new(envoylimit.Config) // used until the management server has sent a configuration
	limits := o.limits(log)
	limits.Book = book
	server, id, err := o.managementServer()
	if err == nil && server == "" {
		cfg, err = loadEnvoy(o.EnvoyConfig, limits.MergeDomains)
	}
	if err != nil {
		return inFlag("envoy_config", err)
	}
	service, err := envoylimit.New(s.node, cfg, limits)
	if err != nil {
		return err
	}
	serving, asking, err := o.EnvoyTLS.credentials()
	if err != nil {
		return inFlag("envoy_tls", err)
	}
	l, err := s.listen("envoy", o.Envoy)
	if err != nil {
		return err
	}
	port := s.budget.Clients(l, "envoy")
	rpc := port.NewRPC(serving, service.Register)
	s.drain = service.Drain
	source := func(ctx context.Context) error { return service.Watch(ctx, o.EnvoyConfig, o.every) }
	hangUp := func() error { return nil }
	if server != "" {
		conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(asking), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silence, Timeout: silence}))
		if err != nil {
			return errors.Join(err, l.Close())
		}
		source = func(ctx context.Context) error { return service.Follow(ctx, conn, id) }
		hangUp = conn.Close
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan error, 1)
	go func() { watched <- source(watching) }()
	go func() {
		if err := rpc.Serve(port); err != nil {
			s.failed <- fmt.Errorf("weir serve: -envoy: %w", err)
		}
	}()
	s.stops = append(s.stops, func(ctx context.Context) {
		stopped := make(chan struct{})
		go func() { rpc.GracefulStop(); close(stopped) }()
		select {
		case <-stopped:
		case <-ctx.Done():
			rpc.Stop() // Stop also makes GracefulStop return
			<-stopped
		}
		stop()
		<-watched
		_ = hangUp()
	})
	return nil
}
