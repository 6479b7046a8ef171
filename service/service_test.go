package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/rules"
)

func TestFromEnvReadsVariablesOfServeCommand(t *testing.T) {
	for name, value := range map[string]string{
		"WEIR_BIND": "127.0.0.1:7946", "WEIR_ADVERTISE": "127.0.0.1", "WEIR_JOIN": "a:1, b:2,", "WEIR_EXPECT": "3",
		"WEIR_SHARED": "shared", "WEIR_RULES": "rules.yaml", "WEIR_RULES_CACHE": "cache",
	} {
		t.Setenv(name, value)
	}
	o, err := FromEnv()
	require.NoError(t, err)
	require.Equal(t, Options{
		Node:   weir.Config{Bind: "127.0.0.1:7946", Advertise: "127.0.0.1", Join: []string{"a:1", "b:2"}, Expect: 3},
		Shared: "shared", Rules: "rules.yaml", RulesCache: "cache",
	}, o)
	t.Setenv("WEIR_EXPECT", "some")
	_, err = FromEnv()
	require.ErrorContains(t, err, `WEIR_EXPECT is "some"`)
}

func write(t testing.TB, text string) (name string) {
	name = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// Nodes with the same secret and seed find each other, whatever the names of their files are.
func TestStartReadsOutputOfWeirSecret(t *testing.T) {
	const printed = "secret: 000102030405060708090a0b0c0d0e0f\nseed: 0f0e0d0c0b0a09080706050403020100\n"
	a, err := Start(t.Context(), Options{Node: weir.Config{Bind: "127.0.0.1:0"}, Shared: write(t, printed)})
	require.NoError(t, err)
	defer a.Close()
	b, err := Start(t.Context(), Options{Node: weir.Config{Bind: "127.0.0.1:0", Join: []string{a.Node.Members()[0].Addr}}, Shared: write(t, printed)})
	require.NoError(t, err)
	defer b.Close()
	require.Eventually(t, func() bool { return len(a.Node.Members()) == 2 }, time.Minute, 5*time.Millisecond)
	of := func(s *Service) [16]byte {
		l, err := s.Node.Limiter(weir.Limit{Name: "r", Rate: 1, Per: time.Minute})
		require.NoError(t, err)
		return l.ID("ada")
	}
	require.Equal(t, of(a), of(b), "by one seed")
	_, err = Start(t.Context(), Options{Shared: write(t, "seed: 0f0e0d0c0b0a09080706050403020100\n")})
	require.ErrorContains(t, err, `no line that begins with "secret:"`)
}

func TestStartWarnsAboutReadableSecrets(t *testing.T) {
	for mode, warnings := range map[os.FileMode]int{0o600: 0, 0o644: 1} {
		name := write(t, "secret: 000102030405060708090a0b0c0d0e0f\nseed: 0f0e0d0c0b0a09080706050403020100\n")
		require.NoError(t, os.Chmod(name, mode))
		var out bytes.Buffer
		s, err := Start(t.Context(), Options{Node: weir.Config{Bind: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&out, nil))}, Shared: name})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Equal(t, warnings, strings.Count(out.String(), `msg="every user of this machine can read a file of secrets; run chmod 600" path=`+name), out.String())
	}
}

func TestStartReturnsErrors(t *testing.T) {
	_, err := Start(t.Context(), Options{Shared: "none"})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Start(t.Context(), Options{Rules: write(t, "rules: [{name: r}]\n")})
	require.ErrorContains(t, err, "limit")
	_, err = Start(t.Context(), Options{Rules: "ftp://example.com/rules.yaml"})
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = Start(t.Context(), Options{RulesCache: "cache"})
	require.ErrorContains(t, err, "RulesCache is set without Rules and Source")
	source, err := rules.NewSource("rules.yaml", rules.SourceOptions{})
	require.NoError(t, err)
	_, err = Start(t.Context(), Options{Rules: "rules.yaml", Source: source})
	require.ErrorContains(t, err, "Rules and Source are set")
	_, err = Start(t.Context(), Options{Node: weir.Config{Bind: "x"}})
	require.ErrorIs(t, err, weir.ErrInvalid)
}

// closable counts the calls of Close.
type closable struct {
	rules.Source
	closed int
}

func (s *closable) Close() error {
	s.closed++
	return nil
}

func TestStartClosesSourceIfItReturnsError(t *testing.T) {
	for name, o := range map[string]Options{
		"two sources": {Rules: "rules.yaml"},
		"no secrets":  {Shared: "none"},
		"no node":     {Node: weir.Config{Bind: "x"}},
		"no rules":    {},
	} {
		source, err := rules.NewSource(write(t, "rules: 5\n"), rules.SourceOptions{})
		require.NoError(t, err)
		s := &closable{Source: source}
		o.Source = s
		_, err = Start(t.Context(), o)
		require.Error(t, err, name)
		require.Equal(t, 1, s.closed, name)
	}
}

func TestServiceStartsFromRulesCache(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "version: 3\nrules: [{name: r, key: ip, limit: {rate: 1, per: 1m}}]\n")
	}))
	o := Options{Rules: server.URL, RulesCache: filepath.Join(t.TempDir(), "cache")}
	for range 2 { // before and after the end of the server
		s, err := Start(t.Context(), o)
		require.NoError(t, err)
		require.EqualValues(t, 3, s.Book.Current().Version())
		require.NoError(t, s.Close())
		server.Close()
	}
}

// A service whose context is done transfers its counts while it still answers, and then stops
// all parts.
func TestServeEndsInOrder(t *testing.T) {
	s, err := Start(t.Context(), Options{Rules: write(t, "rules: [{name: r, key: ip, limit: {rate: 1, per: 1m}}]\n")})
	require.NoError(t, err)
	require.NotNil(t, s.Book)
	addr := lab.FreeAddr(t)
	left, order := make(chan bool, 1), false
	custom := Server{
		Serve:    func() error { order = <-left; return nil },
		Shutdown: func(context.Context) error { left <- !s.Node.Ready(); return nil },
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.Serve(ctx, custom, HTTP(&http.Server{Addr: addr, Handler: http.NotFoundHandler()}))
	}()
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + addr)
		if err != nil {
			return false
		}
		answer.Body.Close()
		return true
	}, time.Minute, 5*time.Millisecond)
	end()
	require.NoError(t, <-done)
	require.True(t, order, "the node left before the server was shut down")
	_, err = http.Get("http://" + addr)
	require.Error(t, err)
	require.ErrorIs(t, s.Node.Leave(t.Context()), weir.ErrClosed)
}

func TestServeReturnsServerError(t *testing.T) {
	s, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	broken, ended := errors.New("broken"), make(chan struct{})
	err = s.Serve(t.Context(),
		Server{Serve: func() error { return broken }, Shutdown: func(context.Context) error { return nil }},
		Server{Serve: func() error { <-ended; return http.ErrServerClosed }, Shutdown: func(context.Context) error { close(ended); return nil }})
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, http.ErrServerClosed)
}

func TestServeAbandonsServerAfterTimeout(t *testing.T) {
	s, err := Start(t.Context(), Options{LeaveWithin: time.Millisecond})
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	end()
	never := make(chan struct{})
	defer close(never)
	err = s.Serve(ctx, Server{Serve: func() error { <-never; return nil }, Shutdown: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
