package s3snapshot_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	s3snapshot "github.com/weir-go/weir/contrib/s3"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

const (
	bucketName = "weir-test"
	// patience is how long an immediate event may take on a busy machine.
	patience = 30 * time.Second
	// versitygw is a gateway from S3 to a directory. The sixty modules take minutes to
	// build, so only the full run uses versitygw.
	versitygw = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
)

var signed = credentials.NewStaticV4("weir", "weir-secret", "")

// server is an S3 server behind a proxy with a hook for faults.
type server struct {
	url     string           // URL of the proxy
	forward http.HandlerFunc // sends a request to the server, past the hook
	kill    func()           // ends the server like a crash, with its connections
	start   func()           // starts the server again, with the stored objects
	client  *minio.Core
	unit    int // bytes of a block (see the method blocks). With 1e6, the parts of an upload have 8 MiB. The size of the parts is proportional to unit

	mu   sync.Mutex
	hook func(http.ResponseWriter, *http.Request) (answered bool)
}

// misbehave sets a hook that the proxy calls before forwarding a request.
func (s *server) misbehave(hook func(http.ResponseWriter, *http.Request) (answered bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// behind starts the proxy in front of the server at the given address, and creates the
// bucket.
func (s *server) behind(t *testing.T, address string) *server {
	t.Helper()
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: address})
			r.Out.Host = r.In.Host // the host is signed
		},
		Transport:    &http.Transport{DisableKeepAlives: true},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	s.forward = forward.ServeHTTP
	ctx, end := context.WithCancel(context.Background()) // ends a hook that hangs
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		hook := s.hook
		s.mu.Unlock()
		if hook == nil || !hook(w, r) {
			s.forward(w, r)
		}
	}))
	proxy.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	proxy.Start()
	t.Cleanup(func() {
		end()
		proxy.CloseClientConnections()
		proxy.Close()
	})
	s.url = proxy.URL
	var err error
	s.client, err = minio.NewCore(proxy.Listener.Addr().String(), &minio.Options{Creds: signed, Region: "us-east-1"})
	require.NoError(t, err)
	require.NoError(t, s.client.MakeBucket(withTimeout(t, patience), bucketName, minio.MakeBucketOptions{}))
	return s
}

// forEachServer runs a test with each server. The default run uses only the server in this
// process.
func forEachServer(t *testing.T, test func(t *testing.T, s *server)) {
	t.Run("gofakes3", func(t *testing.T) { test(t, startFake(t)) })
	t.Run("versitygw", func(t *testing.T) {
		testenv.SkipUnlessFull(t, "the same test with gofakes3")
		test(t, startReal(t))
	})
}

// startFake starts a server in this process, which stores objects in memory. The default
// is the system clock.
func startFake(t *testing.T, clock ...gofakes3.TimeSource) *server {
	t.Helper()
	handler := gofakes3.New(s3mem.New()).Server()
	if len(clock) > 0 {
		handler = gofakes3.New(s3mem.New(s3mem.WithTimeSource(clock[0])), gofakes3.WithTimeSource(clock[0]), gofakes3.WithTimeSkewLimit(0)).Server()
	}
	address := lab.FreeAddr(t)
	var running *http.Server
	s := &server{unit: 1e5}
	s.start = func() {
		listener, err := net.Listen("tcp", address)
		require.NoError(t, err)
		running = &http.Server{Handler: handler}
		go func(h *http.Server) { _ = h.Serve(listener) }(running)
	}
	s.kill = func() { _ = running.Close() }
	s.start()
	t.Cleanup(func() { s.kill() })
	return s.behind(t, address)
}

// startReal starts a server in another process, which stores objects in files.
func startReal(t *testing.T) *server {
	t.Helper()
	address := lab.FreeAddr(t)
	bin, data, meta := t.TempDir(), t.TempDir(), t.TempDir()
	// go run caches the linked program, unlike go install.
	if out, err := exec.Command("go", "run", "-exec", "cp -t "+bin, versitygw).CombinedOutput(); err != nil {
		t.Skipf("go run %s: %v: %s", versitygw, err, out)
	}
	path := filepath.Join(bin, "versitygw")
	var child *lab.Child
	s := &server{unit: 1e6} // the server refuses parts below 5 MiB
	s.start = func() {
		cmd := exec.Command(path, "--port", address, "--access", "weir", "--secret", "weir-secret", "--quiet", "posix", "--sidecar", meta, data)
		var err error
		child, err = lab.StartCommand(cmd, func([]byte) {})
		require.NoError(t, err)
		for ctx := withTimeout(t, patience); ; time.Sleep(10 * time.Millisecond) {
			if c, err := net.Dial("tcp", address); err == nil {
				_ = c.Close()
				return
			}
			select {
			case <-child.Ended():
				t.Fatalf("%s: %s", path, child.Outcome())
			case <-ctx.Done():
				t.Fatalf("%s does not listen", path)
			default:
			}
		}
	}
	s.kill = func() {
		_ = child.Kill()
		<-child.Ended()
	}
	s.start()
	t.Cleanup(func() { s.kill() })
	return s.behind(t, address)
}

// open returns a Bucket of the server. edit changes its Options.
func open(t *testing.T, s *server, edit ...func(*s3snapshot.Options)) *s3snapshot.Bucket {
	t.Helper()
	o := s3snapshot.Options{Bucket: bucketName, Prefix: "weir/test", Endpoint: s.url, Region: "us-east-1", Credentials: signed}
	for _, e := range edit {
		e(&o)
	}
	b, err := s3snapshot.New(o)
	require.NoError(t, err)
	b.SetPartBytes(8 << 20 * s.unit / 1e6)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// keys returns the keys of all objects of the server.
func keys(t *testing.T, s *server) (all []string) {
	t.Helper()
	for o := range s.client.ListObjectsIter(withTimeout(t, patience), bucketName, minio.ListObjectsOptions{Recursive: true}) {
		require.NoError(t, o.Err)
		all = append(all, o.Key)
	}
	return all
}

// uploads returns the keys of uploads that have neither ended nor been aborted.
func uploads(t *testing.T, s *server) (all []string) {
	t.Helper()
	for u := range s.client.ListIncompleteUploads(withTimeout(t, patience), bucketName, "", true) {
		if minio.ToErrorResponse(u.Err).Code == minio.NoSuchUpload {
			continue // gofakes3 returns this for a bucket without any upload
		}
		require.NoError(t, u.Err)
		all = append(all, u.Key)
	}
	return all
}

// text returns a function that writes a snapshot.
func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// blocks returns a function that writes a snapshot of n blocks, and calls before(i) before block i. A
// part has room for eight blocks and a fraction of another block.
func (s *server) blocks(n int, before func(i int)) func(io.Writer) error {
	block := make([]byte, s.unit)
	return func(w io.Writer) error {
		for i := range n {
			before(i)
			if _, err := w.Write(block); err != nil {
				return err
			}
		}
		return nil
	}
}

func everyNode(string) bool { return true }

// load returns the snapshots that Load reads of each node, in order, and the error of
// Load.
func load(t *testing.T, b *s3snapshot.Bucket, refused ...string) (got []string, err error) {
	t.Helper()
	err = b.Load(withTimeout(t, patience), everyNode, func(node string, r io.Reader) error {
		content, err := io.ReadAll(r)
		got = append(got, node+"="+string(content))
		for _, text := range refused {
			if string(content) == text {
				err = errors.Join(err, errDamaged)
			}
		}
		return err
	})
	return got, err
}

// requireLoads requires that Load reads the given snapshots, without an error.
func requireLoads(t *testing.T, b *s3snapshot.Bucket, want ...string) {
	t.Helper()
	got, err := load(t, b)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// hangUntilDone never responds.
func hangUntilDone(_ http.ResponseWriter, r *http.Request) bool {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

var errDamaged = errors.New("damaged")
