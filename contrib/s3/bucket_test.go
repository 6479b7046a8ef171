package s3snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"

	s3snapshot "github.com/weir-go/weir/contrib/s3"
	"github.com/weir-go/weir/internal/lab"
)

func key(node string, generation int) string {
	return fmt.Sprintf("weir/test/%s/%020d.snapshot", node, generation)
}

func TestTwoNewestSnapshotsOfNodeAreKept(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s)
		got, err := load(t, b)
		require.NoError(t, err, "nothing there is no error")
		require.Empty(t, got)

		for i := range 4 {
			require.NoError(t, b.Save(withTimeout(t, patience), "api-1", text(fmt.Sprint("snapshot ", i+1))))
		}
		require.Equal(t, []string{key("api-1", 3), key("api-1", 4)}, keys(t, s))
		requireLoads(t, b, "api-1=snapshot 4")

		require.NoError(t, open(t, s).Save(withTimeout(t, patience), "api-1", text("")), "a new process, and an empty snapshot")
		requireLoads(t, b, "api-1=")
	})
}

func TestDamagedSnapshotFallsBackToPrevious(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s)
		for _, node := range []string{"api-1", "api-2"} {
			for _, content := range []string{"old", "new"} {
				require.NoError(t, b.Save(withTimeout(t, patience), node, text(node+" "+content)))
			}
		}
		got, err := load(t, b, "api-1 new")
		require.ErrorIs(t, err, errDamaged)
		require.ErrorContains(t, err, key("api-1", 2))
		require.NotContains(t, err.Error(), key("api-1", 1))
		require.Equal(t, []string{"api-1=api-1 new", "api-1=api-1 old", "api-2=api-2 new"}, got)

		got, err = load(t, b, "api-1 new", "api-1 old")
		require.ErrorContains(t, err, key("api-1", 2))
		require.ErrorContains(t, err, key("api-1", 1))
		require.Len(t, got, 3)
	})
}

func TestNodesSharePrefixAndReadChosenSnapshots(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		names := []string{"api-1", "api-10", "API-1", "a/b", "a_2fb", ".", "..", "é ü", "%2F?#&+=", "a\x00\xff", "_", "-", strings.Repeat("ä", 42)}
		first, second := open(t, s), open(t, s)
		for i, name := range names {
			b := first
			if i%2 == 1 {
				b = second
			}
			require.NoError(t, b.Save(withTimeout(t, patience), name, text("of "+name)), "%q", name)
		}
		require.Len(t, keys(t, s), len(names))
		var want []string
		for _, name := range names {
			want = append(want, name+"=of "+name)
		}
		got, err := load(t, second)
		require.NoError(t, err)
		require.ElementsMatch(t, want, got)

		got = nil
		err = first.Load(withTimeout(t, patience), func(node string) bool { return node == "api-1" || node == ".." }, func(node string, _ io.Reader) error {
			got = append(got, node)
			return nil
		})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"api-1", ".."}, got)
	})
}

func TestSnapshotsAreListedAndReadOneByOne(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s)
		for _, node := range []string{"api-2", "a/1", "api-2"} {
			require.NoError(t, b.Save(withTimeout(t, patience), node, text("of "+node)))
		}
		entries, err := b.List(withTimeout(t, patience))
		require.NoError(t, err)
		var got []string
		for _, e := range entries {
			require.WithinDuration(t, time.Now(), e.Modified, time.Hour)
			require.NoError(t, b.Get(withTimeout(t, patience), e.Path, func(r io.Reader) error {
				content, err := io.ReadAll(r)
				require.EqualValues(t, len(content), e.Bytes)
				got = append(got, fmt.Sprintf("%s %d %s: %s", e.Node, e.Generation, e.Path, content))
				return err
			}))
		}
		require.Equal(t, []string{
			"a/1 1 a_2f1/00000000000000000001.snapshot: of a/1",
			"api-2 2 api-2/00000000000000000002.snapshot: of api-2",
			"api-2 1 api-2/00000000000000000001.snapshot: of api-2",
		}, got)
		require.ErrorIs(t, b.Get(withTimeout(t, patience), entries[0].Path, func(io.Reader) error { return errDamaged }), errDamaged)
		err = b.Get(withTimeout(t, patience), "api-2/00000000000000000009.snapshot", func(io.Reader) error { panic("there is none") })
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, key("api-2", 9))
	})
}

func TestOverlongNodeNameIsRefused(t *testing.T) {
	b, err := s3snapshot.New(s3snapshot.Options{Bucket: bucketName, Endpoint: "http://127.0.0.1:1", Credentials: signed})
	require.NoError(t, err)
	for name, want := range map[string]string{"": "empty", strings.Repeat("n", 256): "256 bytes", strings.Repeat("ä", 43): "86 bytes, and 258"} {
		require.ErrorContains(t, b.Save(t.Context(), name, text("")), want)
	}
}

func TestForeignObjectsAreLeftAlone(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s)
		foreign := []string{
			"other/api-1/00000000000000000009.snapshot",
			"weir/test/api-1/00000000000000000009.snapshot.gz",
			"weir/test/api-1/9.snapshot",
			"weir/test/api-1/99999999999999999999.snapshot",
			"weir/test/api-1/x/00000000000000000009.snapshot",
			"weir/test/api_1/00000000000000000009.snapshot",
			"weir/test/readme.txt",
			"weir/testing/api-1/00000000000000000009.snapshot",
		}
		for _, k := range foreign {
			_, err := s.client.PutObject(withTimeout(t, patience), bucketName, k, strings.NewReader("foreign"), 7, "", "", minio.PutObjectOptions{})
			require.NoError(t, err)
		}
		for range 3 {
			require.NoError(t, b.Save(withTimeout(t, patience), "api-1", text("ours")))
		}
		requireLoads(t, b, "api-1=ours")
		want := append(slices.Clone(foreign), key("api-1", 2), key("api-1", 3))
		require.ElementsMatch(t, want, keys(t, s))
	})
}

func TestWriterErrorChangesNoObject(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s)
		require.NoError(t, b.Save(withTimeout(t, patience), "api-1", text("before")))
		for _, megabytes := range []int{0, 10} {
			err := b.Save(withTimeout(t, patience), "api-1", func(w io.Writer) error {
				require.NoError(t, s.blocks(megabytes, func(int) {})(w))
				return errDamaged
			})
			require.ErrorIs(t, err, errDamaged)
			require.ErrorContains(t, err, key("api-1", 2))
		}
		require.Panics(t, func() {
			_ = b.Save(withTimeout(t, patience), "api-1", s.blocks(10, func(i int) {
				if i == 9 {
					panic("of the writer")
				}
			}))
		})
		require.Equal(t, []string{key("api-1", 1)}, keys(t, s))
		require.Empty(t, uploads(t, s))
	})
}

func TestOversizedSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s, func(o *s3snapshot.Options) { o.MaxBytes = int64(10 * s.unit) })
		require.NoError(t, b.Save(withTimeout(t, patience), "api-1", s.blocks(10, func(int) {})))
		err := b.Save(withTimeout(t, patience), "api-1", func(w io.Writer) error {
			_ = s.blocks(11, func(int) {})(w) // the function write ignores this error
			return nil
		})
		require.ErrorContains(t, err, "raise Options.MaxBytes")
		require.Equal(t, []string{key("api-1", 1)}, keys(t, s))
		require.Empty(t, uploads(t, s))

		require.NoError(t, open(t, s).Save(withTimeout(t, patience), "api-1", s.blocks(11, func(int) {})))
		read := 0
		err = b.Load(withTimeout(t, patience), everyNode, func(_ string, r io.Reader) error {
			n, err := io.Copy(io.Discard, r)
			read += int(n)
			return err
		})
		require.ErrorContains(t, err, key("api-1", 2)+fmt.Sprintf(": the object has %d bytes", 11*s.unit))
		require.Equal(t, 10*s.unit, read)
	})
}

// requireErrorInTime requires that do returns an error by the deadline of its context. The deadline is extended
// by a quarter, and by the scheduling delay of this process.
func requireErrorInTime(t *testing.T, deadline time.Duration, do func(ctx context.Context) error) (err error) {
	t.Helper()
	late := lab.MeasureDelay()
	defer late.Stop()
	ctx := withTimeout(t, deadline)
	began := time.Now()
	err = do(ctx)
	took := time.Since(began)
	require.Error(t, err)
	require.Less(t, took, deadline+late.Total()+deadline/4)
	return err
}

func ignoreSnapshot(string, io.Reader) error { return nil }

func TestSaveAndLoadFailInTimeWithoutServer(t *testing.T) {
	t.Parallel()
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s)
		require.NoError(t, b.Save(withTimeout(t, patience), "api-1", text("before")))
		requireErrorInTime(t, patience, func(ctx context.Context) error {
			return b.Save(ctx, "api-1", s.blocks(20, func(i int) {
				if i == 10 { // the first part has been sent
					s.kill()
				}
			}))
		})
		requireErrorInTime(t, patience, func(ctx context.Context) error { return b.Load(ctx, everyNode, ignoreSnapshot) })
		s.start()

		requireLoads(t, b, "api-1=before")
		require.Equal(t, []string{key("api-1", 2)}, uploads(t, s), "a dead server cannot abort an upload")
		require.NoError(t, b.Save(withTimeout(t, patience), "api-1", text("after")))
		require.Empty(t, uploads(t, s), "the next Save does")
		requireLoads(t, b, "api-1=after")
	})
}

func TestSlowOrFullServerKeepsPreviousSnapshot(t *testing.T) {
	t.Parallel()
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s)
		require.NoError(t, b.Save(withTimeout(t, patience), "api-1", text("before")))
		for _, phase := range []struct {
			name string
			is   func(r *http.Request) bool
		}{
			{"from the beginning", func(*http.Request) bool { return true }},
			{"in the second part", func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" }},
			{"at the end", func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") }},
		} {
			s.misbehave(func(w http.ResponseWriter, r *http.Request) bool { return phase.is(r) && hangUntilDone(w, r) })
			err := requireErrorInTime(t, time.Second, func(ctx context.Context) error { return b.Save(ctx, "api-1", s.blocks(10, func(int) {})) })
			require.ErrorIs(t, err, context.DeadlineExceeded, phase.name)
			s.misbehave(nil)

			before := uploads(t, s)
			s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				return phase.is(r) && r.Method != http.MethodDelete && r.Method != http.MethodGet && refuse(w, http.StatusInsufficientStorage, "XMinioStorageFull")
			})
			err = b.Save(withTimeout(t, patience), "api-1", s.blocks(10, func(int) {}))
			require.Equal(t, "XMinioStorageFull", minio.ToErrorResponse(errors.Unwrap(err)).Code, "%s: %v", phase.name, err)
			require.ErrorContains(t, err, key("api-1", 2))
			s.misbehave(nil)
			require.Equal(t, before, uploads(t, s), "%s: a failed Save aborts its upload", phase.name)
			require.Equal(t, []string{key("api-1", 1)}, keys(t, s), phase.name)
		}

		// Without a deadline, each request has its own timeout.
		b = open(t, s, func(o *s3snapshot.Options) { o.RequestTimeout = 200 * time.Millisecond })
		s.misbehave(hangUntilDone)
		require.ErrorContains(t, b.Save(t.Context(), "api-1", text("")), "no answer within 200ms")
		require.ErrorContains(t, b.Load(t.Context(), everyNode, ignoreSnapshot), "no answer within 200ms")
		s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, ".snapshot") {
				return false
			}
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
			w.Header().Set("ETag", `"e"`)
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			return hangUntilDone(w, r)
		})
		b = open(t, s, func(o *s3snapshot.Options) { o.RequestTimeout = time.Second })
		half := []string{"api-1=half"}
		var got []string
		for range retries {
			var err error
			got, err = load(t, b)
			require.ErrorContains(t, err, "no answer within 1s")
			if slices.Equal(half, got) {
				break
			}
		}
		require.Equal(t, half, got)
		s.misbehave(nil)
		require.NoError(t, open(t, s).Save(withTimeout(t, patience), "api-1", text("after")))
		require.Empty(t, uploads(t, s))
	})
}

// The time for the abort is a tenth of the remaining time of the context, which a paused
// machine may miss. So the test tries several Saves, and requires the abort of only one of
// their uploads.
func TestTimedOutSaveAbortsItsUpload(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		return r.URL.Query().Get("partNumber") == "2" && hangUntilDone(w, r)
	})
	b := open(t, s)
	for i := range 10 {
		err := requireErrorInTime(t, time.Second, func(ctx context.Context) error { return b.Save(ctx, fmt.Sprint("api-", i), s.blocks(10, func(int) {})) })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if len(uploads(t, s)) == i {
			return
		}
	}
	t.Fatal("no upload was aborted")
}

// retries bounds how often a test repeats a request with a RequestTimeout of a second. If
// this process is paused, a request may time out too early.
const retries = 5

// A slow reader, which merges counts for example, is not a silent server.
func TestRequestTimeoutDoesNotLimitReader(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	s.unit = 1e6 // more than fits into the buffers of a connection
	b := open(t, s)
	require.NoError(t, b.Save(withTimeout(t, patience), "api-1", s.blocks(10, func(int) {})))
	const timeout = time.Second
	b = open(t, s, func(o *s3snapshot.Options) { o.RequestTimeout = timeout })
	var err error
	for range retries {
		var n int64
		err = b.Load(withTimeout(t, patience), everyNode, func(_ string, r io.Reader) error {
			time.Sleep(timeout + timeout/5)
			if _, err := io.CopyN(io.Discard, r, 1e6); err != nil {
				return err
			}
			time.Sleep(timeout + timeout/5)
			var err error
			n, err = io.Copy(io.Discard, r)
			return err
		})
		if err == nil {
			require.EqualValues(t, 9e6, n)
			return
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.NoError(t, err)
}

func TestCancelledSaveLeavesNoObject(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		err := b.Save(ctx, "api-1", s.blocks(20, func(i int) {
			if i == 10 {
				cancel()
			}
		}))
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, keys(t, s))
		require.Empty(t, uploads(t, s))
	})
}

func refuse(w http.ResponseWriter, status int, code string) bool {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>by the test</Message></Error>", code)
	return true
}

func TestFailedRequestIsRetried(t *testing.T) {
	t.Parallel()
	forEachServer(t, func(t *testing.T, s *server) {
		var puts atomic.Int64
		s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPut && puts.Add(1)%2 == 1 && refuse(w, http.StatusServiceUnavailable, "SlowDown")
		})
		b := open(t, s)
		content := bytes.Repeat([]byte("0123456789"), s.unit)
		require.NoError(t, b.Save(withTimeout(t, patience), "api-1", func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		}))
		require.NoError(t, b.Load(withTimeout(t, patience), everyNode, func(_ string, r io.Reader) error {
			got, err := io.ReadAll(r)
			require.True(t, bytes.Equal(content, got))
			return err
		}))
		require.EqualValues(t, 4, puts.Load(), "two parts, twice each")
	})
}

// Credentials without permission to remove are supported, if a rule of the bucket expires
// objects.
func TestDeniedRemovalIsNoError(t *testing.T) {
	s := startFake(t)
	b := open(t, s)
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		denied := r.Method == http.MethodDelete || r.URL.Query().Has("uploads") && r.Method == http.MethodGet
		return denied && refuse(w, http.StatusForbidden, "AccessDenied")
	})
	for range 4 {
		require.NoError(t, b.Save(withTimeout(t, patience), "api-1", text("")))
	}
	require.Len(t, keys(t, s), 4)

	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodDelete && refuse(w, http.StatusConflict, "OperationAborted")
	})
	err := b.Save(withTimeout(t, patience), "api-1", text("saved"))
	require.ErrorContains(t, err, key("api-1", 5)+" is saved, but")
	require.ErrorContains(t, err, "removing "+key("api-1", 1))
	s.misbehave(nil)
	requireLoads(t, b, "api-1=saved")
	require.NoError(t, b.Save(withTimeout(t, patience), "api-1", text("")))
	require.Len(t, keys(t, s), 2)
}

func TestAbandonedSnapshotsAreRemovedAfterFortyDays(t *testing.T) {
	clock := gofakes3.FixedTimeSource(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	s := startFake(t, clock)
	save := func(nodes ...string) {
		for _, node := range nodes { // each by a separate process, which looks for outdated objects of other nodes
			require.NoError(t, open(t, s).Save(withTimeout(t, patience), node, text("")))
		}
	}
	const day = 24 * time.Hour
	begin := func(keys ...string) {
		for _, k := range keys {
			_, err := s.client.NewMultipartUpload(withTimeout(t, patience), bucketName, k, minio.PutObjectOptions{})
			require.NoError(t, err)
		}
	}
	begin(key("gone", 3), "weir/test/foreign")
	save("gone", "gone", "quiet", "api-1")
	require.Equal(t, []string{"weir/test/foreign"}, uploads(t, s), "its own")
	begin(key("gone", 3))
	clock.Advance(30 * day)
	save("quiet", "api-1")
	require.Equal(t, []string{"weir/test/foreign"}, uploads(t, s), "of others, after a day")
	clock.Advance(10*day - time.Hour)
	begin(key("gone", 3))
	save("api-1")
	require.Len(t, uploads(t, s), 2, "it may go on")
	require.Len(t, keys(t, s), 2+2+2, "not before")
	clock.Advance(2 * time.Hour)
	save("api-1")
	require.Equal(t, []string{key("api-1", 3), key("api-1", 4), key("quiet", 1), key("quiet", 2)}, keys(t, s))
	clock.Advance(30 * day)
	save("api-1")
	require.Equal(t, []string{key("api-1", 4), key("api-1", 5)}, keys(t, s), "quiet saved last 40 days ago")
}

func TestMissingBucketIsReported(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		b := open(t, s, func(o *s3snapshot.Options) { o.Bucket = "no-such-bucket" })
		for _, err := range []error{b.Save(withTimeout(t, patience), "api-1", text("")), b.Load(withTimeout(t, patience), everyNode, ignoreSnapshot)} {
			require.ErrorContains(t, err, "listing weir/test/")
			require.ErrorContains(t, err, "no-such-bucket")
		}
	})
}

func TestSnapshotIsStreamedInBoundedMemory(t *testing.T) {
	const megabytes, most = 100, 64 << 20
	forEachServer(t, func(t *testing.T, s *server) {
		s.unit = 1e6
		if strings.HasSuffix(t.Name(), "gofakes3") {
			keepNoParts(s, megabytes) // the server uses the memory of this process
		}
		b := open(t, s)
		used := func() int64 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.Sys - m.HeapReleased)
		}
		debug.FreeOSMemory()
		before, peak := used(), int64(0)
		require.NoError(t, b.Save(withTimeout(t, patience), "api-1", s.blocks(megabytes, func(int) { peak = max(peak, used()) })))
		require.NoError(t, b.Load(withTimeout(t, patience), everyNode, func(_ string, r io.Reader) error {
			block := make([]byte, 1e6)
			for range megabytes {
				if _, err := io.ReadFull(r, block); err != nil {
					return err
				}
				peak = max(peak, used())
			}
			_, err := r.Read(block)
			require.ErrorIs(t, err, io.EOF)
			return nil
		}))
		t.Logf("%d MB took %d MB of memory", megabytes, (peak-before)>>20)
		require.Less(t, peak-before, int64(most))
	})
}

// keepNoParts makes the server discard the parts of an upload except for a few bytes. In
// place of the object, the server sends the given number of MB.
func keepNoParts(s *server, megabytes int) {
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPut && r.URL.Query().Has("partNumber"):
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("part")), 4
			r.Header.Set("Content-Length", "4")
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".snapshot"):
			w.Header().Set("Content-Length", fmt.Sprint(megabytes*1e6))
			w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
			w.Header().Set("ETag", `"e"`)
			_ = s.blocks(megabytes, func(int) {})(w)
			return true
		}
		return false
	})
}

func TestSecondSaveOfSameKeyFails(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		first, second := open(t, s), open(t, s)
		err := second.Save(withTimeout(t, patience), "api-1", func(w io.Writer) error {
			require.NoError(t, first.Save(withTimeout(t, patience), "api-1", text("first")))
			return text("second")(w)
		})
		require.ErrorContains(t, err, "another process has saved")
		requireLoads(t, first, "api-1=first")
	})
}

func TestMultipartUploadReplacesNoObject(t *testing.T) {
	t.Parallel()
	s := startFake(t) // ignores the condition of such an upload
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !r.URL.Query().Has("uploadId") || r.Header.Get("If-None-Match") != "*" {
			return false
		}
		w.WriteHeader(http.StatusPreconditionFailed)
		return true
	})
	err := open(t, s).Save(withTimeout(t, patience), "api-1", s.blocks(9, func(int) {}))
	require.ErrorContains(t, err, "another process has saved")
	require.Empty(t, keys(t, s))
}

func TestServerWithoutConditionalRequestsKeepsSnapshots(t *testing.T) {
	s := startFake(t)
	var conditional, others atomic.Int32
	s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		if r.Header.Get("If-None-Match") == "" {
			others.Add(1)
			return false
		}
		conditional.Add(1)
		w.WriteHeader(http.StatusNotImplemented)
		return true
	})
	require.NoError(t, open(t, s).Save(withTimeout(t, patience), "api-1", text("kept")))
	require.Equal(t, []string{key("api-1", 1)}, keys(t, s))
	require.Equal(t, []int32{1, 1}, []int32{conditional.Load(), others.Load()})
}

// The server saves the object, and its response is lost. The next attempt then finds the
// object, or finds that the upload has ended.
func TestSaveSucceedsAfterLostAnswer(t *testing.T) {
	t.Parallel()
	forEachServer(t, func(t *testing.T, s *server) {
		for node, content := range map[string]func(io.Writer) error{"one request": text("kept"), "multipart": s.blocks(9, func(int) {})} {
			lost := 0
			s.misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				isLast := r.Method == http.MethodPut && !r.URL.Query().Has("partNumber") || r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
				if !isLast || lost > 0 {
					return false
				}
				lost++
				s.forward(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			})
			require.NoError(t, open(t, s).Save(withTimeout(t, patience), node, content), node)
			require.Equal(t, 1, lost, node)
		}
		require.Len(t, keys(t, s), 2)
	})
}
