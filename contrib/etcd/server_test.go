//go:build unix

package etcdrules_test

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/weir-go/weir/contrib/internal/sourcetest"
	"github.com/weir-go/weir/internal/lab"

	etcdrules "github.com/weir-go/weir/contrib/etcd"
)

const (
	password = "sup3r-secret"
	key      = "/weir/production"
)

// server is a real etcd.
type server struct{ sourcetest.Server }

// newServer returns an etcd with a directory of its own, which is a member of a cluster.
func newServer(t *testing.T, name, addr, peer, cluster string) *server {
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("etcd is not installed: apt-get install etcd-server")
	}
	dir := t.TempDir()
	return &server{sourcetest.Server{
		Addr: addr,
		Command: func() *exec.Cmd {
			c := exec.Command(etcd, "--name", name, "--data-dir", dir,
				"--listen-client-urls", "http://"+addr, "--advertise-client-urls", "http://"+addr,
				"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
				"--initial-cluster", cluster, "--heartbeat-interval", "20", "--election-timeout", "200", "--bcrypt-cost", "4")
			lab.TieToParent(c)
			return c
		},
	}}
}

// start starts an etcd that requires a password.
func start(t *testing.T) *server {
	peer := lab.FreeAddr(t)
	s := newServer(t, "a", lab.FreeAddr(t), peer, "a=http://"+peer)
	s.Start(t)
	t.Cleanup(func() { s.end(t) })
	s.do(t, func(ctx context.Context, c *clientv3.Client) error {
		if _, err := c.UserAdd(ctx, "root", password); err != nil {
			return err
		}
		if _, err := c.UserGrantRole(ctx, "root", "root"); err != nil {
			return err
		}
		_, err := c.AuthEnable(ctx)
		return err
	})
	return s
}

// begin starts the server again, and waits until it has a leader.
func (s *server) begin(t *testing.T) {
	t.Helper()
	s.Start(t)
	s.do(t, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Get(ctx, key)
		return err
	})
}

func (s *server) end(t *testing.T) { s.Stop(t, syscall.SIGKILL) }

// config configures a client of the server, or of a proxy at addr. The client connects again soon.
func config(addr string) clientv3.Config {
	again := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}
	return clientv3.Config{
		Endpoints: []string{"http://" + addr}, Username: "root", Password: password,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second})},
	}
}

// do calls f with a client.
func (s *server) do(t *testing.T, f func(ctx context.Context, c *clientv3.Client) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.GiveUp)
	defer cancel()
	cfg := config(s.Addr)
	cfg.Logger, cfg.Context = zap.NewNop(), ctx
	c, err := clientv3.New(cfg)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, f(ctx, c))
}

func (s *server) put(t *testing.T, text string) {
	t.Helper()
	s.do(t, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, key, text)
		return err
	})
}

func (s *server) remove(t *testing.T) {
	t.Helper()
	s.do(t, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Delete(ctx, key)
		return err
	})
}

// open returns a Source of the key, at servers or proxies.
func open(t *testing.T, poll, timeout time.Duration, addrs ...string) *etcdrules.Source {
	t.Helper()
	cfg := config(addrs[0])
	cfg.DialTimeout = timeout
	for _, addr := range addrs[1:] {
		cfg.Endpoints = append(cfg.Endpoints, "http://"+addr)
	}
	source, err := etcdrules.New(etcdrules.Options{Client: cfg, Key: key, Poll: poll})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, source.Close()) })
	return source
}
