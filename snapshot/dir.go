package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// defaultMaxBytes is used if DirOptions.MaxBytes is 0.
	defaultMaxBytes = 16 << 30
	// generations is the number of snapshots that are kept for a node.
	generations = 2
	// keepFor is how long a Dir keeps snapshots that their node has not replaced. The
	// time exceeds the longest calendar window, a month, so that a removed snapshot has no
	// units of a calendar limit that still count. Units of a limit with a longer Per are lost.
	keepFor = 40 * 24 * time.Hour
	// lockName is the name of the file that a process locks while it uses the directory.
	lockName = "lock"
)

// DirOptions configure OpenDir. The zero value is valid.
type DirOptions struct {
	// MaxBytes is the maximum size of a snapshot; 0 means 16 GiB. If a snapshot is larger,
	// Save returns an error and keeps the earlier snapshots. The directory needs room for
	// two kept snapshots of each node, and for the snapshot that is being written.
	MaxBytes int64
}

// Dir is a Store in a directory, which one process uses at a time. Several nodes of the
// process may share a Dir. A Dir keeps the last two snapshots of each node, and removes
// the snapshots of a node that has not saved a snapshot for 40 days.
//
// A snapshot is written to a temporary file, which is renamed once the data is on the
// disk. Therefore a crash leaves the earlier snapshots, and at worst temporary files,
// which OpenDir removes. A system call cannot be cancelled: if the disk hangs, a method
// may return long after ctx is done.
type Dir struct {
	path     string
	maxBytes int64
	lock     *os.File
	busy     chan struct{} // a lock of capacity 1: holds a token while a method uses the files
	closed   bool          // protected by busy
}

var _ Store = (*Dir)(nil)

// OpenDir opens a directory. A missing directory is created with mode 0700. Files have
// mode 0600. OpenDir returns an error if another process, or another Dir of this process,
// has opened the directory. On AIX, Solaris, Plan 9 and WebAssembly, OpenDir does not
// detect this.
func OpenDir(path string, opts DirOptions) (*Dir, error) {
	switch {
	case path == "":
		return nil, errors.New("snapshot: the path of the directory is empty: name a directory that no other process uses")
	case opts.MaxBytes < 0:
		return nil, fmt.Errorf("snapshot: DirOptions.MaxBytes is %d: use 0 for 16 GiB, or a positive number", opts.MaxBytes)
	case opts.MaxBytes == 0:
		opts.MaxBytes = defaultMaxBytes
	}
	path, err := filepath.Abs(path) // so that a later os.Chdir has no effect
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	d := &Dir{path: path, maxBytes: opts.MaxBytes, busy: make(chan struct{}, 1)}
	switch d.lock, err = lockFile(filepath.Join(path, lockName)); {
	case errors.Is(err, errLocked):
		return nil, fmt.Errorf("snapshot: another process uses the directory %s: give each process a directory of its own, or stop the other one", path)
	case err != nil:
		return nil, fmt.Errorf("snapshot: the directory %s cannot be locked: use one on a disk of this machine, or on a file system that has locks: %w", path, err)
	}
	if err := d.removeTemporary(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", errors.Join(err, d.lock.Close()))
	}
	return d, nil
}

// Close unlocks the directory, so that another process can open it. Close waits for a
// running Save or Load. To end such a call early, cancel its ctx. Later calls of Save and
// Load return an error.
func (d *Dir) Close() error {
	d.busy <- struct{}{}
	defer d.end()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.lock.Close()
}

// begin waits until no other method uses the files. If it returns nil, the caller must call
// end.
func (d *Dir) begin(ctx context.Context) error {
	select {
	case d.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("snapshot: another call still uses the directory %s: %w", d.path, ctx.Err())
	}
	if d.closed {
		d.end()
		return fmt.Errorf("snapshot: the directory %s is closed: %w", d.path, os.ErrClosed)
	}
	return nil
}

func (d *Dir) end() { <-d.busy }

// Save implements [Store]. Every name of at most 72 bytes is valid, whichever bytes it has.
func (d *Dir) Save(ctx context.Context, node string, write func(w io.Writer) error) error {
	name, err := escape(node)
	if err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.end()
	entries, err := List(d.path)
	if err != nil {
		return err
	}
	temporary := filepath.Join(d.path, name+temporarySuffix)
	if err := d.write(ctx, temporary, write); err != nil {
		return fmt.Errorf("snapshot: saving %q to %s: %w", node, d.path, errors.Join(err, removeIfThere(temporary)))
	}
	saved := Entry{Node: node, Generation: 1, Modified: time.Now()}
	for _, e := range entries {
		if e.Node == node {
			saved.Generation = max(saved.Generation, e.Generation+1)
		}
	}
	saved.Path = filepath.Join(d.path, fileName(name, saved.Generation))
	if err := rename(temporary, saved.Path, d.path); err != nil {
		return fmt.Errorf("snapshot: saving %q: %w", node, err)
	}
	for _, e := range outdated(entries, saved) {
		_ = os.Remove(e.Path) // after a failure, the next Save tries again
	}
	return nil
}

// write creates a file with the bytes that the function write writes, and returns after they are
// on the disk.
func (d *Dir) write(ctx context.Context, path string, write func(w io.Writer) error) (err error) {
	if err := removeIfThere(path); err != nil { // left by a write that panicked
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := &boundedWriter{ctx: ctx, file: file, left: d.maxBytes, max: d.maxBytes}
	if err := write(w); err != nil {
		return err
	}
	if w.err != nil { // write may have ignored the error
		return w.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return file.Sync()
}

// rename renames a file durably. After an error, rename removes the file.
func rename(from, to, dir string) error {
	if err := os.Rename(from, to); err != nil {
		return errors.Join(err, removeIfThere(from))
	}
	if err := syncDir(dir); err != nil {
		return errors.Join(err, removeIfThere(to))
	}
	return nil
}

// syncDir writes the names in a directory to the disk.
func syncDir(path string) error {
	if runtime.GOOS == "windows" { // Windows syncs only files
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // the file system cannot sync a directory
	}
	return errors.Join(err, dir.Close())
}

// outdated returns the entries to remove after the snapshot saved was stored: the snapshots
// of the same node except for the newest of the earlier snapshots, and the snapshots of
// nodes that have not saved a snapshot for keepFor.
func outdated(entries []Entry, saved Entry) (old []Entry) {
	newest := make(map[string]time.Time)
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Mode != 0 })
	for _, e := range entries {
		if e.Modified.After(newest[e.Node]) {
			newest[e.Node] = e.Modified
		}
	}
	kept := 1 // the snapshot saved itself
	for _, e := range entries {
		switch {
		case e.Node != saved.Node && saved.Modified.Sub(newest[e.Node]) > keepFor:
			old = append(old, e)
		case e.Node == saved.Node && kept == generations:
			old = append(old, e)
		case e.Node == saved.Node:
			kept++
		}
	}
	return old
}

// Load implements [Store]. Load ignores the function mine, its second argument, and reads the
// snapshots of all nodes. The directory belongs to a single process, so all snapshots are from
// nodes of this process, which may have had other names.
func (d *Dir) Load(ctx context.Context, _ func(node string) bool, read func(node string, r io.Reader) error) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.end()
	entries, err := List(d.path)
	if err != nil {
		return err
	}
	var errs []error
	for len(entries) > 0 {
		node := entries[0].Node
		next := slices.IndexFunc(entries, func(e Entry) bool { return e.Node != node })
		if next < 0 {
			next = len(entries)
		}
		for i, files := 0, 0; i < next && files < generations; i++ {
			e := entries[i]
			if err := ctx.Err(); err != nil {
				return errors.Join(append(errs, fmt.Errorf("snapshot: reading %s: %w", d.path, err))...)
			}
			if e.Mode == 0 {
				files++
			}
			if err = e.read(ctx, read); err == nil {
				break
			}
			errs = append(errs, fmt.Errorf("snapshot: reading %s: %w", e.Path, err))
		}
		entries = entries[next:]
	}
	return errors.Join(errs...)
}

// read calls a function with the node and the file of the entry.
func (e Entry) read(ctx context.Context, read func(node string, r io.Reader) error) error {
	file, err := Open(e.Path)
	if err != nil {
		return err
	}
	return errors.Join(read(e.Node, boundedReader{ctx, file}), file.Close())
}

// removeTemporary removes the temporary files of an earlier process that ended during a Save.
func (d *Dir) removeTemporary() error {
	files, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, ours := unescape(strings.TrimSuffix(f.Name(), temporarySuffix)); ours && strings.HasSuffix(f.Name(), temporarySuffix) {
			if err := removeIfThere(filepath.Join(d.path, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// boundedWriter writes at most the maximum number of bytes to a file, until ctx is done. After
// the first error, all later calls of Write return that error.
type boundedWriter struct {
	ctx       context.Context
	file      *os.File
	left, max int64
	err       error
}

func (w *boundedWriter) Write(p []byte) (n int, err error) {
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err == nil && int64(len(p)) > w.left {
		w.err = fmt.Errorf("the snapshot has more than DirOptions.MaxBytes, %d bytes: raise MaxBytes, or hold fewer counts", w.max)
	}
	if w.err != nil {
		return 0, w.err
	}
	n, w.err = w.file.Write(p)
	w.left -= int64(n)
	return n, w.err
}

// boundedReader reads a file until ctx is done.
type boundedReader struct {
	ctx  context.Context
	file *os.File
}

func (r boundedReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.file.Read(p)
}
