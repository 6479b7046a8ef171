package snapshot

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

func open(t *testing.T, path string, opts DirOptions) *Dir {
	d, err := OpenDir(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func save(t *testing.T, d *Dir, node, s string) {
	require.NoError(t, d.Save(ctx, node, text(s)))
}

// refuseAll is the argument mine of Load, which a Dir ignores.
func refuseAll(string) bool { return false }

// load returns the snapshots that Load reads, as "node: text", and the error of Load.
// Texts that begin with "bad" are refused.
func load(d *Dir) (read []string, err error) {
	err = d.Load(ctx, refuseAll, func(node string, r io.Reader) error {
		b, err := io.ReadAll(r)
		read = append(read, node+": "+string(b))
		if err == nil && strings.HasPrefix(string(b), "bad") {
			err = errors.New("refused " + string(b))
		}
		return err
	})
	return read, err
}

func requireLoads(t *testing.T, d *Dir, want ...string) {
	read, err := load(d)
	require.NoError(t, err)
	require.Equal(t, want, read)
}

// files returns the names in a directory, without the lock.
func files(t *testing.T, dir string) (names []string) {
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range all {
		if f.Name() != lockName {
			names = append(names, f.Name())
		}
	}
	return names
}

func TestLoadReadsNewestSnapshotOfEachNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "here")
	d := open(t, path, DirOptions{})
	requireLoads(t, d)
	save(t, d, "a", "a1")
	save(t, d, "b", "b1")
	save(t, d, "a", "a2")
	save(t, d, "a", "a3")
	requireLoads(t, d, "a: a3", "b: b1")
	require.Equal(t, []string{"weir-a.2.snapshot", "weir-a.3.snapshot", "weir-b.1.snapshot"}, files(t, path), "two generations")

	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "twice")
	require.ErrorIs(t, d.Save(ctx, "a", text("a4")), os.ErrClosed)
	_, err := load(d)
	require.ErrorIs(t, err, os.ErrClosed)
	d = open(t, path, DirOptions{})
	requireLoads(t, d, "a: a3", "b: b1")
}

func TestFilesAreReadableByUserOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode here")
	}
	path := filepath.Join(t.TempDir(), "made")
	d := open(t, path, DirOptions{})
	save(t, d, "a", "a1")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	for _, name := range append(files(t, path), lockName) {
		info, err := os.Stat(filepath.Join(path, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
}

func TestFailedSaveChangesNothing(t *testing.T) {
	failed := errors.New("no more")
	meanwhile, cancelMeanwhile := context.WithCancel(ctx)
	atEnd, cancelAtEnd := context.WithCancel(ctx)
	for name, c := range map[string]struct {
		ctx   context.Context
		node  string
		write func(w io.Writer) error
		want  string
	}{
		"write fails at once":  {ctx, "a", func(io.Writer) error { return failed }, "no more"},
		"write fails halfway":  {ctx, "a", func(w io.Writer) error { return errors.Join(text("half")(w), failed) }, "no more"},
		"more than MaxBytes":   {ctx, "a", text("12345678901"), "MaxBytes, 10 bytes: raise MaxBytes"},
		"more, in parts":       {ctx, "a", func(w io.Writer) error { return errors.Join(text("1234567890")(w), text("1")(w)) }, "MaxBytes, 10 bytes: raise MaxBytes"},
		"more, which it hides": {ctx, "a", func(w io.Writer) error { _ = text("12345678901")(w); return nil }, "MaxBytes, 10 bytes: raise MaxBytes"},
		"more, then less":      {ctx, "a", func(w io.Writer) error { _ = text("12345678901")(w); return text("1")(w) }, "MaxBytes, 10 bytes: raise MaxBytes"},
		"canceled meanwhile":   {meanwhile, "a", func(w io.Writer) error { cancelMeanwhile(); return cmp.Or(text("new")(w), errors.New("goes on")) }, "context canceled"},
		"canceled at its end":  {atEnd, "a", func(io.Writer) error { cancelAtEnd(); return nil }, "context canceled"},
		"a name too long":      {ctx, strings.Repeat("A", 73), text("new"), "has 73 bytes, and 219 as a file name: use at most 72 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			d := open(t, path, DirOptions{MaxBytes: 10})
			save(t, d, "a", "a1")
			save(t, d, "a", "0123456789")
			before := files(t, path)
			err := d.Save(c.ctx, c.node, c.write)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "snapshot: ")
			if c.want == failed.Error() {
				require.ErrorIs(t, err, failed)
			}
			require.Equal(t, before, files(t, path))
			requireLoads(t, d, "a: 0123456789")
			save(t, d, "a", "a3")
			requireLoads(t, d, "a: a3")
		})
	}
}

func TestPanickingSaveLeavesDirUsable(t *testing.T) {
	d := open(t, t.TempDir(), DirOptions{})
	require.Panics(t, func() { _ = d.Save(ctx, "a", func(io.Writer) error { panic("here") }) })
	save(t, d, "a", "a1")
	requireLoads(t, d, "a: a1")
}

func TestLoadFallsBackToPreviousSnapshot(t *testing.T) {
	d := open(t, t.TempDir(), DirOptions{})
	for node, texts := range map[string][]string{"a": {"a1", "bad a2"}, "b": {"b1"}, "c": {"bad c1"}, "d": {"d1", "bad d2", "bad d3"}} {
		for _, s := range texts {
			save(t, d, node, s)
		}
	}
	read, err := load(d)
	require.Equal(t, []string{"a: bad a2", "a: a1", "b: b1", "c: bad c1", "d: bad d3", "d: bad d2"}, read)
	for _, want := range []string{"weir-a.2.snapshot: refused bad a2", "refused bad c1", "refused bad d2", "refused bad d3"} {
		require.ErrorContains(t, err, want)
	}
}

func TestLoadEndsWithItsContext(t *testing.T) {
	d := open(t, t.TempDir(), DirOptions{})
	save(t, d, "a", "a1")
	save(t, d, "b", "b1")
	canceled, cancel := context.WithCancel(ctx)
	var read []string
	err := d.Load(canceled, refuseAll, func(node string, r io.Reader) error {
		read = append(read, node)
		cancel()
		_, err := io.ReadAll(r)
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"a"}, read)

	// A call that waits for another call ends with the context, too.
	require.NoError(t, d.Save(ctx, "a", func(io.Writer) error {
		require.ErrorIs(t, d.Save(canceled, "b", text("b2")), context.Canceled)
		require.ErrorIs(t, d.Load(canceled, refuseAll, nil), context.Canceled)
		return nil
	}))
}

func TestConcurrentSavesDoNotMix(t *testing.T) {
	d := open(t, t.TempDir(), DirOptions{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for g := range 4 {
				assert.NoError(t, d.Save(ctx, fmt.Sprint(i), text(fmt.Sprint(g))))
			}
		})
	}
	all.Wait()
	requireLoads(t, d, "0: 3", "1: 3", "2: 3", "3: 3", "4: 3", "5: 3", "6: 3", "7: 3")
}

func TestSnapshotsOfGoneNodesAreRemoved(t *testing.T) {
	path := t.TempDir()
	d := open(t, path, DirOptions{})
	for _, node := range []string{"gone", "recent", "self"} {
		save(t, d, node, "1")
		save(t, d, node, "2")
	}
	age := func(name string, days int) {
		at := time.Now().Add(-time.Duration(days)*24*time.Hour - time.Minute)
		require.NoError(t, os.Chtimes(filepath.Join(path, name), at, at))
	}
	age("weir-gone.1.snapshot", 50)
	age("weir-gone.2.snapshot", 40)
	age("weir-recent.1.snapshot", 41)
	age("weir-recent.2.snapshot", 39)
	age("weir-self.1.snapshot", 50)
	age("weir-self.2.snapshot", 50)
	require.Error(t, d.Save(ctx, "self", func(io.Writer) error { return io.ErrShortWrite }))
	requireLoads(t, d, "gone: 2", "recent: 2", "self: 2")
	save(t, d, "self", "3")
	require.Equal(t, []string{"weir-recent.1.snapshot", "weir-recent.2.snapshot", "weir-self.2.snapshot", "weir-self.3.snapshot"}, files(t, path))
}

// A child process opens the directory, and is killed while it saves.
func TestSecondProcessIsRefusedUntilFirstEnds(t *testing.T) {
	const variable = "WEIR_TEST_SNAPSHOTS"
	if path := os.Getenv(variable); path != "" {
		d, err := OpenDir(path, DirOptions{})
		if err == nil {
			err = d.Save(ctx, "a", text("a1"))
		}
		if err == nil {
			_ = d.Save(ctx, "a", func(w io.Writer) error {
				fmt.Println("saving", text("half")(w))
				_, err := io.Copy(io.Discard, os.Stdin) // until the child is killed
				return err
			})
		}
		fmt.Println(err)
		os.Exit(1)
	}
	path := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"="+path)
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "saving <nil>\n", line)

	_, err = OpenDir(path, DirOptions{})
	require.ErrorContains(t, err, "snapshot: another process uses the directory "+path+": give each process a directory of its own, or stop the other one")
	listed, err := List(path)
	require.NoError(t, err)
	require.Len(t, listed, 1, "a directory in use can be listed")

	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	require.Contains(t, files(t, path), "weir-a.writing")
	d := open(t, path, DirOptions{})
	requireLoads(t, d, "a: a1")
	require.Equal(t, []string{"weir-a.1.snapshot"}, files(t, path))
	_, err = OpenDir(path, DirOptions{})
	require.ErrorContains(t, err, "another process uses", "within one process too")
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	path := t.TempDir()
	others := []string{
		"notes.txt", "weir-a.snapshot", "weir-a.x.snapshot", "weir-a.01.snapshot", "weir-a.1.snapshot.bak", "weir-A.1.snapshot", "weir-%6.1.snapshot",
		"weir-%61.1.snapshot", "weir-%zz.1.snapshot", "weir-a.18446744073709551615.snapshot", "a.1.snapshot", "notes.writing", ".snapshot", "weir-a.-1.snapshot",
	}
	for _, name := range others {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), []byte("bad"), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(path, "weir-dir.snapshot"), 0o700))
	d := open(t, path, DirOptions{})
	requireLoads(t, d)
	save(t, d, "a", "a1")
	requireLoads(t, d, "a: a1")
	require.Subset(t, files(t, path), others)
}

func TestListReturnsNewestFirst(t *testing.T) {
	path := t.TempDir()
	d := open(t, path, DirOptions{})
	save(t, d, "b", "b1")
	for i := range 11 {
		save(t, d, "A", strings.Repeat("x", i))
	}
	listed, err := List(path)
	require.NoError(t, err)
	for i := range listed {
		require.WithinDuration(t, time.Now(), listed[i].Modified, time.Hour)
		listed[i].Modified = time.Time{}
	}
	require.Equal(t, []Entry{
		{Node: "A", Generation: 11, Path: filepath.Join(path, "weir-%41.11.snapshot"), Bytes: 10},
		{Node: "A", Generation: 10, Path: filepath.Join(path, "weir-%41.10.snapshot"), Bytes: 9},
		{Node: "b", Generation: 1, Path: filepath.Join(path, "weir-b.1.snapshot"), Bytes: 2},
	}, listed)
	_, err = List(filepath.Join(path, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestErrorOfOpenDirHasItsCause(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]string{"": "the path of the directory is empty", file: file, filepath.Join(file, "below"): file} {
		_, err := OpenDir(path, DirOptions{})
		require.ErrorContains(t, err, "snapshot: ")
		require.ErrorContains(t, err, want)
	}
	_, err := OpenDir(t.TempDir(), DirOptions{MaxBytes: -1})
	require.ErrorContains(t, err, "DirOptions.MaxBytes is -1: use 0 for 16 GiB, or a positive number")
}

func FuzzFileName(f *testing.F) {
	for _, seed := range []string{
		"weir-a.1.snapshot", "weir-%41%00.2.snapshot", "weir-..0.snapshot", "", ".", "..", "../../etc/passwd", "/", `c:\x`, "a", "A", "a.1.snapshot", "a.1", "con", "lock",
		"%61", "a b", "é", "\x00\xff\n", "-", strings.Repeat("\xff", 72), strings.Repeat("x", 216),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if escaped, err := escape(name); err == nil {
			require.Regexp(t, `^weir-[a-z0-9%._-]*$`, escaped)
			require.LessOrEqual(t, len(fileName(escaped, 1<<maxGenerationBits)), 255)
			node, generation, ok := parseFileName(fileName(escaped, 7))
			require.True(t, ok)
			require.Equal(t, name, node)
			require.EqualValues(t, 7, generation)
		} else {
			require.Greater(t, len(name), 72, "a short name is refused")
		}
		if node, generation, ok := parseFileName(name); ok {
			escaped, err := escape(node)
			require.NoError(t, err)
			require.Equal(t, name, fileName(escaped, generation))
		}
	})
}
