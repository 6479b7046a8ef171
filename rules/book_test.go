package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/strictyaml"
)

func startNode(t testing.TB) *weir.Node {
	n, err := weir.Start(t.Context(), weir.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { n.Close() })
	return n
}

// staticBook returns a Static Book of the rules in a text.
func staticBook(t testing.TB, n *weir.Node, text string) *Book {
	b, err := Static(n, mustParse(t, text))
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// journal is a log that can be read while it is being written.
type journal struct{ lab.Text }

func (j *journal) contains(text string) bool { return j.count(text) > 0 }

func (j *journal) count(text string) int { return strings.Count(j.String(), text) }

func open(t testing.TB, path string, o BookOptions) (*Book, *journal) {
	log := new(journal)
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	b, err := Open(t.Context(), startNode(t), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b, log
}

// openText writes text to a file and opens it. The book does not poll the file and depends on events.
func openText(t testing.TB, text string) (b *Book, log *journal, path string) {
	path = filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, text)
	b, log = open(t, path, BookOptions{Poll: never})
	return b, log, path
}

// ratedFile returns a file of a rule with the given version and rate.
func ratedFile(version, rate int) string {
	return fmt.Sprintf("version: %d\nrules:\n- {name: r, key: user, limit: {rate: %d, per: 1h}}\n", version, rate)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// replace renames a new file to path.
func replace(t testing.TB, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	require.NoError(t, os.Rename(path+".new", path))
}

func eventually(t testing.TB, about string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 10*time.Second, 5*time.Millisecond, about)
}

func rateOf(b *Book) int64 {
	s := b.Current()
	return s.Limiter(&s.Rules()[0].Limits[0], "", "k").Limit().Rate
}

const never = time.Hour // the Book must not depend on polling

func TestChangedFileTakesEffect(t *testing.T) {
	b, log, path := openText(t, ratedFile(1, 10))
	require.EqualValues(t, 10, rateOf(b))
	old := b.Current()

	replace(t, path, ratedFile(2, 20))
	eventually(t, "renamed over", func() bool { return rateOf(b) == 20 })
	require.Zero(t, b.Stats().Refused)
	write(t, path, ratedFile(3, 30)) // the Book may read the file while it is empty
	eventually(t, "written in place", func() bool { return rateOf(b) == 30 })

	require.EqualValues(t, 1, old.Version(), "who has a version keeps it")
	s := b.Stats()
	require.EqualValues(t, 3, s.Version)
	require.EqualValues(t, 3, s.Loads)
	require.Greater(t, s.Serial, old.Serial())
	require.Equal(t, hashOf([]byte(ratedFile(3, 30))), s.Hash)
	require.NoError(t, s.LastError)
	require.Equal(t, []any{path, 1, 1, 0, false}, []any{s.Source, s.Rules, s.Limits, s.Overrides, s.Missing})
	require.True(t, log.contains("hash="+s.Hash))
}

// The file of a ConfigMap is a symlink to ..data/file, and ..data is a symlink to a directory
// for each version. A rename of ..data changes all files at once.
func TestReplacedConfigMapTakesEffect(t *testing.T) {
	dir := t.TempDir()
	put := func(version int, text string) {
		name := fmt.Sprintf("..2026_11_%02d", version)
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name, "rules.yaml"), text)
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	put(1, ratedFile(1, 10))
	path := filepath.Join(dir, "rules.yaml")
	require.NoError(t, os.Symlink(filepath.Join("..data", "rules.yaml"), path))
	b, _ := open(t, path, BookOptions{Poll: never})
	for v := 2; v < 5; v++ {
		put(v, ratedFile(v, 10*v))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_11_%02d", v-1))))
		eventually(t, "swapped", func() bool { return rateOf(b) == int64(10*v) })
	}
	put(5, "rules: 5")
	eventually(t, "a bad one is refused", func() bool { return b.Stats().Refused == 1 })
	require.EqualValues(t, 40, rateOf(b))
}

func TestInvalidFileLeavesLastVersionInForce(t *testing.T) {
	b, log, path := openText(t, ratedFile(1, 10))

	replace(t, path, ratedFile(2, 0))
	eventually(t, "refused", func() bool { return b.Stats().Refused == 1 })
	s := b.Stats()
	var at *strictyaml.Error
	require.ErrorAs(t, s.LastError, &at)
	require.Equal(t, []int{3, 38}, []int{at.Line, at.Column})
	require.EqualError(t, s.LastError, path+":3:38: rate is 0: use 1 to 1000000000000")
	require.EqualValues(t, 1, s.Version)
	require.EqualValues(t, 10, rateOf(b))
	require.True(t, log.contains("rate is 0: use 1 to 1000000000000"))

	replace(t, path, ratedFile(1, 10))
	eventually(t, "what is in force is in the file again", func() bool { return b.Stats().LastError == nil })
	require.EqualValues(t, 1, b.Stats().Loads)
	replace(t, path, ratedFile(2, 20))
	eventually(t, "mended", func() bool { return rateOf(b) == 20 })
}

func TestRemovedFileLeavesLastVersionInForce(t *testing.T) {
	b, log, path := openText(t, ratedFile(1, 10))

	require.NoError(t, os.Remove(path))
	eventually(t, "missed", func() bool { return b.Stats().Missing })
	require.ErrorIs(t, b.Stats().LastError, os.ErrNotExist)
	require.True(t, log.contains("were refused: the last good version stays in force"))
	require.EqualValues(t, 10, rateOf(b))

	write(t, path, ratedFile(1, 10))
	eventually(t, "back as it was", func() bool { return !b.Stats().Missing && b.Stats().LastError == nil })
	require.NoError(t, os.Remove(path))
	eventually(t, "missed again", func() bool { return b.Stats().Missing })
	write(t, path, ratedFile(2, 20))
	eventually(t, "back with news", func() bool { return rateOf(b) == 20 && !b.Stats().Missing })
}

func TestPollingFindsChangesWithoutEvents(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "mount")
	require.NoError(t, os.Mkdir(dir, 0o700))
	elsewhere := filepath.Join(t.TempDir(), "real.yaml")
	write(t, elsewhere, ratedFile(1, 10))
	path := filepath.Join(dir, "rules.yaml")
	require.NoError(t, os.Symlink(elsewhere, path))
	b, _ := open(t, path, BookOptions{Poll: 20 * time.Millisecond})

	write(t, elsewhere, ratedFile(2, 20))
	eventually(t, "changed where a symlink leads", func() bool { return rateOf(b) == 20 })

	require.NoError(t, os.RemoveAll(dir))
	eventually(t, "its directory is gone", func() bool { return b.Stats().Missing })
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, path, ratedFile(3, 30))
	eventually(t, "its directory is back", func() bool { return rateOf(b) == 30 })
}

// reload reads a file once, as a Book of the file does.
func reload(t *testing.T, b *Book, path string) {
	text, err := newFileSource(path, never, nil).Next(t.Context(), "")
	if err != nil {
		b.noteUnread(err)
		return
	}
	_ = b.load(text)
}

// newUnwatchedBook returns a Book of a file that is read only when the test calls reload.
func newUnwatchedBook(t *testing.T, text string) (b *Book, path string, log *journal) {
	path, log = filepath.Join(t.TempDir(), "rules.yaml"), new(journal)
	write(t, path, text)
	b = newBook(startNode(t), new(sharedValues), slog.New(slog.NewTextHandler(log, nil)))
	reload(t, b, path)
	require.NotNil(t, b.Current())
	return b, path, log
}

func TestFaultOfFileIsLoggedOnce(t *testing.T) {
	b, path, log := newUnwatchedBook(t, ratedFile(1, 10))
	for i, fault := range []func(){
		func() { write(t, path, ratedFile(2, 0)) },
		func() { require.NoError(t, os.Remove(path)) },
		func() { require.NoError(t, os.Remove(path)) }, // a second time, after the file was back
	} {
		fault()
		for range 5 {
			reload(t, b, path)
		}
		require.Equal(t, i+1, log.count("were refused"))
		require.EqualValues(t, 1, b.Stats().Refused, "a missing file is not a refused one")
		write(t, path, ratedFile(1, 10))
		reload(t, b, path)
	}
}

// The Book waits at most a second for a file to stop changing.
func TestConstantlyWrittenFileIsRead(t *testing.T) {
	b, _, path := openText(t, ratedFile(1, 10))
	stop, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				if err := errors.Join(os.WriteFile(path+".new", []byte(ratedFile(2, 20)), 0o600), os.Rename(path+".new", path)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	eventually(t, "read", func() bool { return rateOf(b) == 20 })
	close(stop)
	<-written
}

func TestOpenRequiresValidFile(t *testing.T) {
	n, dir := startNode(t), t.TempDir()
	_, err := Open(t.Context(), n, filepath.Join(dir, "none.yaml"), BookOptions{})
	require.ErrorIs(t, err, os.ErrNotExist)
	path := filepath.Join(dir, "rules.yaml")
	write(t, path, "rules: [{}]")
	_, err = Open(t.Context(), n, path, BookOptions{})
	require.EqualError(t, err, path+":1:9: name is missing\n"+path+":1:9: key is missing\n"+path+":1:9: limit is missing")
	write(t, path, strings.Repeat("#", strictyaml.MaxBytes+5))
	_, err = Open(t.Context(), n, path, BookOptions{})
	require.ErrorContains(t, err, "at most 1048576 are read")
	write(t, path, ratedFile(1, 10))
	_, err = Open(t.Context(), n, path, BookOptions{Poll: -1})
	require.ErrorIs(t, err, weir.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Open(ctx, n, path, BookOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, n.Close())
	_, err = Open(t.Context(), n, path, BookOptions{})
	require.ErrorIs(t, err, weir.ErrClosed)
}

func TestReloadKeepsCounts(t *testing.T) {
	file := func(version, rate int) string {
		return fmt.Sprintf("version: %d\ntiers: {free: {}, paid: {multiply: 10}}\nrules:\n- {name: r, key: user, limit: {rate: %d, per: 1h, algorithm: sliding_log}}\n", version, rate)
	}
	b, _, path := openText(t, file(1, 10))
	spend := func(tier string, units int64) weir.Decision {
		s := b.Current()
		d, err := s.Limiter(&s.Rules()[0].Limits[0], tier, "k").AllowN(t.Context(), "k", units)
		require.NoError(t, err)
		return d
	}
	require.EqualValues(t, 4, spend("free", 6).Remaining)
	require.EqualValues(t, 93, spend("paid", 1).Remaining, "a tier has other numbers, and the same count")
	replace(t, path, file(2, 20))
	eventually(t, "reloaded", func() bool { return b.Stats().Version == 2 })
	require.EqualValues(t, 12, spend("free", 1).Remaining)
}

func TestNewAlgorithmRequiresNewVersion(t *testing.T) {
	file := func(version int, algorithm string) string {
		return fmt.Sprintf("version: %d\nrules:\n- {name: r, key: user, limit: {rate: 5, per: 1h, algorithm: %s}}\n", version, algorithm)
	}
	b, _, path := openText(t, file(3, "sliding_log"))
	replace(t, path, file(3, "fixed_window"))
	eventually(t, "refused", func() bool { return b.Stats().Refused == 1 })
	require.EqualError(t, b.Stats().LastError,
		path+`:3:61: limit "r" was a sliding_log and is a fixed_window, at version 3: a new algorithm needs a version above 3`)
	replace(t, path, file(4, "fixed_window"))
	eventually(t, "loaded", func() bool { return b.Stats().Version == 4 })
}

// Counts in use are judged by the highest version that was used for them. A lower version would
// be reported as in force, but would not judge these counts.
func TestLowerVersionIsRefused(t *testing.T) {
	b, _, path := openText(t, ratedFile(5, 10))
	refusals := uint64(0)
	for text, at := range map[string]string{ratedFile(4, 1000): ":1:10", "rules: []": ":1:1"} {
		replace(t, path, text)
		refusals++
		eventually(t, "refused", func() bool { return b.Stats().Refused == refusals })
		require.ErrorContains(t, b.Stats().LastError, path+at+": version is ")
		require.ErrorContains(t, b.Stats().LastError, ", below 5, which is in force")
		require.EqualValues(t, 10, rateOf(b))
	}
	replace(t, path, ratedFile(5, 20))
	eventually(t, "the same version may have other numbers", func() bool { return rateOf(b) == 20 })
	replace(t, path, ratedFile(6, 10))
	eventually(t, "the way back is up", func() bool { return rateOf(b) == 10 })
}

// Each version has the same number in all limits. A reader of a Snapshot must see the same number in
// all limits, and no request may fail.
func TestSnapshotHasOneVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	file := func(n int) string {
		var text strings.Builder
		fmt.Fprintf(&text, "version: %d\ntiers: {paid: {multiply: 2}}\nrules:\n", n)
		for i := range 20 {
			fmt.Fprintf(&text, "- {name: r%d, match: {path: /v%d}, key: user, limit: {rate: %d, per: 1h}, soft: {over: 100%%, for: 1m}}\n", i, n%2, n)
		}
		return text.String()
	}
	const first = 1_000_000 // a rate so high that no request is denied
	write(t, path, file(first))
	b, _ := open(t, path, BookOptions{Poll: never})
	var stop atomic.Bool
	var readers sync.WaitGroup
	var seen sync.Map
	for range 4 {
		readers.Go(func() {
			for !stop.Load() {
				s := b.Current()
				n := int64(s.Version())
				seen.Store(n, true)
				met := s.Match(&Request{Method: "GET", Path: fmt.Sprintf("/v%d", n%2)}, nil)
				if len(met) != 20 {
					t.Errorf("version %d: %d rules", n, len(met))
					return
				}
				for _, r := range met {
					hard, paid, soft := s.Limiter(&r.Limits[0], "", "k"), s.Limiter(&r.Limits[0], "paid", "k"), s.Count(&r.Limits[0], "", "k").Soft
					if hard.Limit().Rate != n || paid.Limit().Rate != 2*n || soft.Limit().Rate != n || hard.Limit().Version != uint64(n) {
						t.Errorf("version %d: limits of %d, %d and %d", n, hard.Limit().Rate, paid.Limit().Rate, soft.Limit().Rate)
						return
					}
				}
				if d, err := s.Limiter(&met[0].Limits[0], "", "k").Allow(t.Context(), "k"); err != nil || !d.Allowed {
					t.Errorf("version %d: %v %v", n, d, err)
					return
				}
			}
		})
	}
	for n := first + 1; n <= first+8; n++ {
		replace(t, path, file(n))
		eventually(t, "loaded", func() bool { return b.Stats().Version == uint64(n) })
	}
	stop.Store(true)
	readers.Wait()
	_, ok := seen.Load(int64(first + 4))
	require.True(t, ok, "readers saw nothing in between")
}

func TestStaticBookKeepsItsSet(t *testing.T) {
	b := staticBook(t, startNode(t), ratedFile(5, 50))
	require.EqualValues(t, 50, rateOf(b))
	require.EqualValues(t, 5, b.Stats().Version)
	require.NoError(t, b.Close())
	require.EqualValues(t, 50, rateOf(b), "closed, it has what it had")
}

func TestNilNodeAndNilSetAreInvalid(t *testing.T) {
	n, set := startNode(t), mustParse(t, ratedFile(1, 10))
	for name, call := range map[string]func() error{
		"Static: the node":     func() error { _, err := Static(nil, set); return err },
		"Static: the Set":      func() error { _, err := Static(n, nil); return err },
		"Open: the node":       func() error { _, err := Open(t.Context(), nil, "rules.yaml", BookOptions{}); return err },
		"Publish: the Set":     func() error { _, err := staticBook(t, n, ratedFile(1, 10)).Publish(nil, Control{By: "jo"}); return err },
		"Replace: the Set":     func() error { return staticBook(t, n, ratedFile(1, 10)).Replace(nil) },
		"OpenSource: the node": func() error { _, err := OpenSource(t.Context(), nil, newFakeSource(""), BookOptions{}); return err },
	} {
		err := call()
		require.ErrorIs(t, err, weir.ErrInvalid, name)
		require.ErrorContains(t, err, "is nil", name)
	}
}

// sharedValues stands for the published values of several nodes. A published value is available to
// all Books at once.
type sharedValues struct {
	mu       sync.Mutex
	values   map[string]weir.Published
	revision uint64
	fails    error
}

func (b *sharedValues) Publish(name string, version uint64, value []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.values[name]
	if version == 0 {
		version = held.Version + 1
	}
	switch {
	case b.fails != nil:
		return b.fails
	case version <= held.Version:
		return weir.ErrInvalid
	}
	if b.values == nil {
		b.values = make(map[string]weir.Published)
	}
	b.values[name] = weir.Published{Name: name, Version: version, Value: value}
	b.revision++
	return nil
}

func (b *sharedValues) Published(prefix string) (all []weir.Published, revision uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, v := range b.values {
		if strings.HasPrefix(name, prefix) && len(v.Value) > 0 {
			all = append(all, v)
		}
	}
	return all, b.revision
}

func (b *sharedValues) PublishedAfter(uint64) <-chan struct{} { return nil }

// newSharedBook returns a Book with the rules of text, the published values v and the clock now. The Book has
// no goroutines: after a change, the test calls refresh.
func newSharedBook(t testing.TB, v values, now *time.Time, text string) *Book {
	b := newBook(startNode(t), v, slog.New(slog.DiscardHandler))
	b.now = func() time.Time { return *now }
	require.NoError(t, b.enforce(mustParse(t, text)))
	return b
}

const overridable = `
tiers: {free: {}, paid: {multiply: 2}}
rules:
- {name: r, key: user, soft: {over: 50%, for: 1m}, limit: {rate: 10, per: 1h}}
- {name: bucket, key: user, limit: {rate: 10, per: 1h, algorithm: token_bucket, burst: 30}}
- {name: dated, key: user, limit: {rate: 10, calendar: day}}
`

func TestOverrideAppliesToKeyOnAllNodes(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	here, there := newSharedBook(t, &shared, &now, overridable), newSharedBook(t, &shared, &now, overridable)
	limit := func(b *Book, name, tier, key string) weir.Limit {
		s := b.Current()
		l, _, ok := s.Limit(name)
		require.True(t, ok)
		return s.Limiter(l, tier, key).Limit()
	}
	require.NoError(t, here.Override("r", "123", Override{Rate: 5000, Control: Control{By: "an admin", Reason: "a trial", Until: now.Add(72 * time.Hour)}}))
	there.refresh()
	for _, b := range []*Book{here, there} {
		require.EqualValues(t, 5000, limit(b, "r", "", "123").Rate)
		require.EqualValues(t, 5000, limit(b, "r", "paid", "123").Rate, "whatever the tier")
		require.Equal(t, time.Hour, limit(b, "r", "", "123").Per)
		require.EqualValues(t, 10, limit(b, "r", "", "124").Rate, "another key")
		require.EqualValues(t, 20, limit(b, "r", "paid", "124").Rate)
		require.EqualValues(t, 10, limit(b, "bucket", "", "123").Rate, "another limit")
		s := b.Current()
		l, _, _ := s.Limit("r")
		require.EqualValues(t, 2500, s.Count(l, "", "123").Soft.Limit().Rate)
		require.EqualValues(t, 5, s.Count(l, "", "124").Soft.Limit().Rate)
		o, ok := b.OverrideOf("r", "123")
		require.True(t, ok)
		require.Equal(t, Override{Limit: "r", ID: s.Limiter(l, "", "123").ID("123"), Rate: 5000, Control: Control{Until: now.Add(72 * time.Hour), By: "an admin", Reason: "a trial", At: now}}, o)
		require.Equal(t, []Override{o}, b.Overrides())
		require.Equal(t, 1, b.Stats().Overrides)
	}
	for name := range shared.values {
		require.NotContains(t, name, "123", "no key is published")
	}

	require.NoError(t, there.Override("r", "123", Override{Rate: 7, Per: time.Minute}))
	here.refresh()
	require.Equal(t, []any{int64(7), time.Minute}, []any{limit(here, "r", "", "123").Rate, limit(here, "r", "", "123").Per}, "the last writer wins")
	require.NoError(t, here.Override("bucket", "123", Override{Rate: 5, Burst: 6}))
	require.EqualValues(t, 6, limit(here, "bucket", "", "123").Burst)
	require.NoError(t, here.Override("dated", "123", Override{Rate: 77}))
	require.Equal(t, weir.Day, limit(here, "dated", "", "123").Calendar)

	require.NoError(t, here.Restore("r", "123"))
	there.refresh()
	require.EqualValues(t, 10, limit(here, "r", "", "123").Rate)
	require.EqualValues(t, 10, limit(there, "r", "", "123").Rate)
	_, ok := here.OverrideOf("r", "123")
	require.False(t, ok)
	revision := shared.revision
	require.NoError(t, here.Restore("r", "123"), "there is none, and that is fine")
	require.Equal(t, revision, shared.revision, "and nothing to tell")
}

func TestOverridesEndOnTime(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, overridable)
	for key, minutes := range map[string]int{"a": 3, "k": 1, "c": 2} {
		require.NoError(t, b.Override("r", key, Override{Rate: 99, Control: Control{Until: now.Add(time.Duration(minutes) * time.Minute)}}))
	}
	now = now.Add(time.Minute - 1)
	b.refresh()
	require.EqualValues(t, 99, rateOf(b))
	now = now.Add(1)
	for left := 2; left >= 0; left-- {
		b.refresh()
		require.Len(t, b.Overrides(), left)
		require.EqualValues(t, 10, rateOf(b))
		now = now.Add(time.Minute)
	}
	for _, v := range shared.values {
		require.Empty(t, v.Value, "it is taken back everywhere")
		require.EqualValues(t, 2, v.Version, "one above, and so below whatever is set anew")
	}
}

func TestOverridesSurviveReload(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, overridable)
	require.NoError(t, b.Override("r", "k", Override{Rate: 99}))
	require.NoError(t, b.enforce(mustParse(t, strings.ReplaceAll(overridable, "rate: 10", "rate: 11"))))
	require.EqualValues(t, 99, rateOf(b))
	require.NoError(t, b.enforce(mustParse(t, "rules:\n- {name: other, key: user, limit: {rate: 10, per: 1h}}")))
	require.Empty(t, b.Overrides(), "its limit is gone")
	require.NoError(t, b.enforce(mustParse(t, overridable)))
	require.EqualValues(t, 99, rateOf(b), "and back")
	require.NoError(t, b.enforce(mustParse(t, "version: 7\n"+strings.ReplaceAll(overridable, "per: 1h", "per: 2h"))))
	s := b.Current()
	l := s.Limiter(&s.Rules()[0].Limits[0], "", "k").Limit()
	require.Equal(t, []any{int64(99), 2 * time.Hour, uint64(7)}, []any{l.Rate, l.Per, l.Version}, "what it does not say is as the file says now")
}

func TestInvalidOverridesAreRefused(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, overridable)
	for _, c := range []struct {
		about, limit, key string
		o                 Override
		want              string
	}{
		{"an unknown limit", "x", "k", Override{Rate: 1}, `weir: invalid Override: there is no limit "x"`},
		{"a key that no node takes", "r", strings.Repeat("k", 1025), Override{Rate: 1}, `weir: invalid Override: the key has 1025 bytes: use at most 1024`},
		{"a rate below 0", "r", "k", Override{Rate: -1}, "Rate is -1"},
		{"a block with a time", "r", "k", Override{Per: time.Hour}, "Per or Burst is set with Rate 0"},
		{"a burst of a window", "r", "k", Override{Rate: 1, Burst: 2}, "Burst"},
		{"a time that is past", "r", "k", Override{Rate: 1, Control: Control{Until: now}}, `weir: invalid Override: Until is ` + now.Format(time.RFC3339) + `: it is past`},
		{"an author that is too long", "r", "k", Override{Rate: 1, Control: Control{By: strings.Repeat("a", 129)}}, "weir: invalid Override: By has 129 bytes: use at most 128"},
		{"a reason that is too long", "r", "k", Override{Rate: 1, Control: Control{Reason: strings.Repeat("a", 257)}}, "weir: invalid Override: Reason has 257 bytes: use at most 256"},
		{"a time of a calendar window", "dated", "k", Override{Rate: 1, Per: time.Hour}, "Per"},
	} {
		err := b.Override(c.limit, c.key, c.o)
		require.ErrorIs(t, err, weir.ErrInvalid, c.about)
		require.ErrorContains(t, err, c.want, c.about)
	}
	require.Empty(t, shared.values)
	require.ErrorIs(t, b.Restore("x", "k"), weir.ErrInvalid)
	shared.fails = errors.New("no room")
	require.ErrorIs(t, b.Override("r", "k", Override{Rate: 1}), shared.fails)
}

func TestPublishedOverridesAreValidated(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, overridable)
	good := publishedName("r", [16]byte{1})
	for name, value := range map[string]string{
		"override/": "{}", "override/r": "{}", "override/r/xyz": "{}", publishedName("r", [16]byte{2}): "{", publishedName("none", [16]byte{3}): `{"rate":5}`,
		publishedName("r", [16]byte{4}): `{"at":"2026-11-30T08:00:00Z"}`, publishedName("r", [16]byte{5}): `{"rate":5,"burst":9}`, publishedName("r", [16]byte{6}): `{"rate":1e99}`,
		"override/r/" + strings.Repeat("zz", 16): `{"rate":5}`, good: `{"rate":5,"later":"than this version"}`,
	} {
		require.NoError(t, shared.Publish(name, 0, []byte(value)))
	}
	b.refresh()
	require.Len(t, b.Overrides(), 1)
	require.Equal(t, [16]byte{1}, b.Overrides()[0].ID)

	held := shared.values[good]
	held.Value = []byte(`{"rate":6}`)
	shared.values[good] = held
	shared.revision++
	b.refresh()
	require.EqualValues(t, 6, b.Overrides()[0].Rate, "of two that were set at one version the other may come later, and hold")
}

func TestSnapshotDoesNotAllocate(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, overridable)
	require.NoError(t, b.Override("r", "k", Override{Rate: 99}))
	s := b.Current()
	l := &s.Rules()[0].Limits[0]
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Limiter(l, "paid", "k")
		s.Count(l, "free", "other")
	}))
}

// If a later release has set overrides for a million keys that this release cannot read, there
// is a single log line.
func TestUnreadableOverridesAreLoggedOnce(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, overridable)
	log := new(journal)
	b.log = slog.New(slog.NewTextHandler(log, nil))
	for i := range 50 {
		require.NoError(t, shared.Publish(publishedName("r", [16]byte{byte(i)}), 1, []byte("{")))
		require.NoError(t, shared.Publish(publishedName("dated", [16]byte{byte(i)}), 1, []byte(`{"rate":1,"per":3600000000000}`)))
	}
	b.refresh()
	require.Equal(t, 1, log.count("ignored an unreadable published value; set it again or remove it\" name="))
	require.Equal(t, 1, log.count("ignored an override; set it again or remove it\" limit="), log.String())
}
