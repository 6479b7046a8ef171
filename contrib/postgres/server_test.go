//go:build unix

package pgrules_test

import (
	"cmp"
	"context"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/contrib/internal/sourcetest"
	pgrules "github.com/weir-go/weir/contrib/postgres"
	"github.com/weir-go/weir/internal/lab"
)

const (
	password = "sup3r-secret"
	row      = "production"
)

// server is a real Postgres in a temporary directory.
type server struct {
	sourcetest.Server
	dir string
}

// program returns the path of a program of Postgres, which Debian keeps off the PATH.
func program(t *testing.T, name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	paths, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	require.NoError(t, err)
	if len(paths) == 0 {
		t.Skipf("%s is not installed: apt-get install postgresql", name)
	}
	return slices.Max(paths)
}

// attributes returns the attributes of the processes of Postgres. Postgres refuses to run as root.
func attributes(t *testing.T) *syscall.SysProcAttr {
	if os.Getuid() != 0 {
		return nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		t.Skipf("Postgres does not run as root: %v", err)
	}
	uid, err := strconv.Atoi(account.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(account.Gid)
	require.NoError(t, err)
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// start starts a Postgres with the table weir_rules.
func start(t *testing.T) *server {
	postgres, initdb := program(t, "postgres"), program(t, "initdb")
	attr := attributes(t)
	dir, err := os.MkdirTemp("/tmp", "weirpg") // the path of a socket has at most 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte(password), 0o644))
	if attr != nil {
		require.NoError(t, os.Chown(dir, int(attr.Credential.Uid), int(attr.Credential.Gid)))
	}
	data := filepath.Join(dir, "data")
	create := exec.Command(initdb, "-D", data, "-U", "weir", "-A", "scram-sha-256", "--pwfile", secret,
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions", "--wal-segsize", "1")
	create.Dir, create.SysProcAttr = dir, attr
	out, err := create.CombinedOutput()
	require.NoError(t, err, "%s", out)

	s := serve(t, dir, data, postgres, attr)
	s.exec(t, pgrules.Schema)
	return s
}

// serve starts a Postgres with the given data.
func serve(t *testing.T, dir, data, postgres string, attr *syscall.SysProcAttr) *server {
	s := &server{Server: sourcetest.Server{Addr: lab.FreeAddr(t)}, dir: dir}
	_, port, err := net.SplitHostPort(s.Addr)
	require.NoError(t, err)
	s.Command = func() *exec.Cmd {
		c := exec.Command(postgres, "-D", data, "-k", dir, "-h", "127.0.0.1", "-p", port, "-c", "fsync=off", "-c", "shared_buffers=8MB",
			"-c", "max_connections=20", "-c", "autovacuum=off")
		c.Dir = dir
		lab.TieToParent(c)
		if c.SysProcAttr == nil {
			c.SysProcAttr = attr
		} else if attr != nil {
			c.SysProcAttr.Credential = attr.Credential
		}
		return c
	}
	s.begin(t)
	t.Cleanup(func() { s.end(t) })
	return s
}

// standby starts a standby of the server.
func (s *server) standby(t *testing.T) *server {
	attr, data := attributes(t), filepath.Join(s.dir, "standby")
	backup := exec.Command(program(t, "pg_basebackup"), "-D", data, "-d", url(s.Addr), "-R", "-c", "fast", "--no-sync")
	backup.Dir, backup.SysProcAttr = s.dir, attr
	out, err := backup.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return serve(t, s.dir, data, program(t, "postgres"), attr)
}

// begin starts the server, and waits until it has recovered.
func (s *server) begin(t *testing.T) {
	t.Helper()
	s.Start(t)
	lab.Eventually(t, "Postgres answers", func() bool { return s.try("SELECT 1") == nil })
}

// end stops the server, and breaks its connections.
func (s *server) end(t *testing.T) { s.Stop(t, syscall.SIGQUIT) }

// url returns the URL of the server, or of a proxy at addr.
func url(addr string) string {
	return "postgres://weir:" + password + "@" + addr + "/postgres?sslmode=disable"
}

// exec executes SQL.
func (s *server) exec(t *testing.T, sql string, args ...string) {
	t.Helper()
	require.NoError(t, s.try(sql, args...))
}

func (s *server) try(sql string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), lab.GiveUp)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url(s.Addr))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if len(args) == 0 {
		_, err = conn.Exec(ctx, sql).ReadAll()
		return err
	}
	var values [][]byte
	for _, arg := range args {
		values = append(values, []byte(arg))
	}
	return conn.ExecParams(ctx, sql, values, nil, nil, nil).Read().Err
}

func (s *server) put(t *testing.T, text string) {
	t.Helper()
	s.exec(t, "INSERT INTO weir_rules (name, text) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET text = EXCLUDED.text", row, text)
}

func (s *server) remove(t *testing.T) {
	t.Helper()
	s.exec(t, "DELETE FROM weir_rules WHERE name = $1", row)
}

// open returns a Source of the row, at a server or a proxy.
func open(t *testing.T, addr string, poll, timeout time.Duration) *pgrules.Source {
	t.Helper()
	source, err := pgrules.New(pgrules.Options{Connection: url(cmp.Or(addr, "127.0.0.1:1")), Name: row, Poll: poll})
	require.NoError(t, err)
	source.SetTimeout(timeout)
	t.Cleanup(func() { require.NoError(t, source.Close()) })
	return source
}
