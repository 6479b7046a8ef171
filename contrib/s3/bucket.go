package s3snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/weir-go/weir/snapshot"
)

const (
	// generations is the number of snapshots that are kept of each node.
	generations = 2
	// keepFor is how long a Bucket keeps snapshots that their node does not replace. The
	// time exceeds the longest calendar window, a month, so a removed snapshot contains no
	// units of a calendar limit that still count.
	keepFor = 40 * 24 * time.Hour
	// sweepEvery is the interval at which a Bucket looks for outdated snapshots of other
	// nodes.
	sweepEvery = 24 * time.Hour
	// maxSwept bounds the objects of other nodes that one Save removes. The next Save
	// removes further objects.
	maxSwept = 1000
	// maxListed bounds the number of objects under a prefix, and so the memory of a listing.
	maxListed = 100_000
	// cleanupTimeout bounds the abort of an upload that failed.
	cleanupTimeout = 2 * time.Second
)

// Bucket is a snapshot.Store in an S3-compatible bucket, which nodes and processes may share.
// Its methods are safe for concurrent use. Only one process at a time may save under a node's
// name: a Save aborts every other upload of that name.
type Bucket struct {
	client         *minio.Core
	transport      *http.Transport
	bucket, prefix string // the prefix is empty, or ends with a slash
	maxBytes       int64
	partBytes      int           // defaultPartBytes except in tests
	timeout        time.Duration // maximum time of a request

	mu    sync.Mutex
	swept time.Time // when sweep last finished
}

var _ snapshot.Store = (*Bucket)(nil)

// Close closes the idle connections. A running Save or Load continues.
func (b *Bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// Save calls the function write, and stores the written bytes as the newest snapshot of the
// node. If write or its writer returns an error, Save returns that error, and nothing changes
// in the bucket.
//
// If the response to the last request of an upload is lost, Save sends the request again,
// and recognises a snapshot that the first attempt has saved. If every response is lost,
// Save returns an error, and the bucket contains either the whole snapshot or no part. If
// the snapshot is saved but an outdated object cannot be removed, Save returns an error that
// states so. If the server does not permit removals with these credentials, Save returns no
// error, and the bucket needs a rule that expires objects.
//
// Save ends before the deadline of ctx. If ctx is cancelled, Save returns at most 2 s
// later, after an attempt to abort the upload.
func (b *Bucket) Save(ctx context.Context, node string, write func(w io.Writer) error) error {
	escaped, err := escape(node)
	if err != nil {
		return err
	}
	whole := ctx
	ctx, cancel := reserve(ctx)
	defer cancel()
	older, err := b.list(ctx, escaped+"/")
	if err != nil {
		return err
	}
	generation := uint64(1)
	if len(older) > 0 {
		generation = older[0].Generation + 1
	}
	saved := name(escaped, generation)
	if err := b.upload(ctx, whole, b.prefix+saved, write); err != nil {
		return fmt.Errorf("s3snapshot: saving %s: %w", b.prefix+saved, err)
	}
	if err := b.clean(ctx, saved, older, escaped); err != nil {
		return fmt.Errorf("s3snapshot: %s is saved, but not all outdated objects are removed: %w", b.prefix+saved, err)
	}
	return nil
}

// reserve returns a context that ends before the deadline of ctx. The time between them is for
// aborting an upload: a tenth of the time until the deadline, at most cleanupTimeout.
func reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if !has {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(cleanupTimeout, time.Until(deadline)/10)))
}

// Load calls the function read sequentially, with the newest snapshot of each node for which the
// function mine returns true. If read returns an error, or the object cannot be read, Load tries
// the previous snapshot of the node, if there is one. Load returns all errors joined, each with the
// key of its object, and nil if there is no snapshot. Once ctx is done, Load reads no more
// snapshots.
func (b *Bucket) Load(ctx context.Context, mine func(node string) bool, read func(node string, r io.Reader) error) error {
	entries, err := b.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, of := range byNode(entries) {
		if !mine(of[0].Node) {
			continue
		}
		for _, e := range of[:min(generations, len(of))] {
			err := b.Get(ctx, e.Path, func(r io.Reader) error { return read(e.Node, r) })
			if err == nil {
				break
			}
			errs = append(errs, err)
			if ctx.Err() != nil {
				return errors.Join(errs...)
			}
		}
	}
	return errors.Join(errs...)
}

// List returns the snapshots of all nodes, sorted by node, the newest of a node first. The
// field Path of an Entry is the key without the prefix, as [Bucket.Get] expects it.
func (b *Bucket) List(ctx context.Context) ([]snapshot.Entry, error) { return b.list(ctx, "") }

// Get calls the function read with the snapshot at a Path of [Bucket.List], and returns the error
// of read. If the object does not exist, for example because newer snapshots have replaced it, the
// error is fs.ErrNotExist.
func (b *Bucket) Get(ctx context.Context, path string, read func(r io.Reader) error) error {
	key := b.prefix + path
	err := b.request(ctx, func(ctx context.Context, silence *time.Timer) error {
		body, info, _, err := b.client.GetObject(ctx, b.bucket, key, minio.GetObjectOptions{})
		switch {
		case minio.ToErrorResponse(err).Code == minio.NoSuchKey:
			return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		case err != nil:
			return err
		}
		defer body.Close()
		if info.Size > b.maxBytes {
			return fmt.Errorf("the object has %d bytes, and Options.MaxBytes is %d: raise MaxBytes", info.Size, b.maxBytes)
		}
		silence.Stop()
		return read(&reader{io.LimitReader(body, b.maxBytes), silence, b.timeout})
	})
	if err != nil {
		return fmt.Errorf("s3snapshot: reading %s: %w", key, err)
	}
	return nil
}

// reader restarts the timer silence for each Read, and stops the timer between two of them.
type reader struct {
	body    io.Reader
	silence *time.Timer
	timeout time.Duration
}

func (r *reader) Read(p []byte) (int, error) {
	r.silence.Reset(r.timeout)
	defer r.silence.Stop()
	return r.body.Read(p)
}

// request calls the function do with a timer, and with a context that also ends when the timer
// fires. The timer is set to the timeout of a request, and do may reset it. The error contains the
// reason for which the context ended.
func (b *Bucket) request(ctx context.Context, do func(ctx context.Context, silence *time.Timer) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(b.timeout, func() {
		cancel(fmt.Errorf("the server gave no answer within %v: %w", b.timeout, context.DeadlineExceeded))
	})
	defer silence.Stop()
	err := do(ctx, silence)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %v", cause, err)
	}
	return err
}

// list returns the snapshots whose keys begin with the prefix of the Bucket followed by under. They
// are sorted by node, the newest of a node first. Other objects are left out.
func (b *Bucket) list(ctx context.Context, under string) (entries []snapshot.Entry, err error) {
	listed := 0
	err = b.request(ctx, func(ctx context.Context, silence *time.Timer) error {
		for info := range b.client.ListObjectsIter(ctx, b.bucket, minio.ListObjectsOptions{Prefix: b.prefix + under, Recursive: true}) {
			silence.Reset(b.timeout)
			if info.Err != nil {
				return info.Err
			}
			if listed++; listed > maxListed {
				return fmt.Errorf("there are more than %d objects: use a prefix for snapshots alone", maxListed)
			}
			text, within := strings.CutPrefix(info.Key, b.prefix)
			if node, generation, ours := parseName(text); within && ours {
				entries = append(entries, snapshot.Entry{Node: node, Generation: generation, Path: text, Bytes: info.Size, Modified: info.LastModified})
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("s3snapshot: listing %s of bucket %s: %w", b.prefix+under, b.bucket, err)
	}
	slices.SortFunc(entries, func(x, y snapshot.Entry) int {
		return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(y.Generation, x.Generation))
	})
	return entries, nil
}

// byNode splits the result of list by node.
func byNode(entries []snapshot.Entry) (nodes [][]snapshot.Entry) {
	for i, e := range entries {
		if i == 0 || e.Node != entries[i-1].Node {
			nodes = append(nodes, nil)
		}
		nodes[len(nodes)-1] = append(nodes[len(nodes)-1], e)
	}
	return nodes
}

// clean aborts all uploads of the node that has saved a snapshot, and removes the
// snapshots of this node except for the two newest. The argument older has the earlier
// snapshots of the node. If all of this succeeds and a sweep is due, clean also calls sweep.
func (b *Bucket) clean(ctx context.Context, saved string, older []snapshot.Entry, escaped string) error {
	errs := []error{b.abortUploads(ctx, escaped+"/", time.Time{})}
	for _, e := range older[min(generations-1, len(older)):] {
		errs = append(errs, b.remove(ctx, e.Path))
	}
	b.mu.Lock()
	due := time.Since(b.swept) >= sweepEvery
	b.mu.Unlock()
	if due && errors.Join(errs...) == nil {
		errs = append(errs, b.sweep(ctx, saved))
	}
	return errors.Join(errs...)
}

// sweep removes the snapshots of nodes that have saved no snapshot for keepFor, and aborts
// uploads that are older than sweepEvery. Both times are measured up to the moment at which the
// server stored the snapshot saved, so that the clock of this machine does not matter.
func (b *Bucket) sweep(ctx context.Context, saved string) error {
	entries, err := b.List(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(entries, func(e snapshot.Entry) bool { return e.Path == saved })
	if at < 0 {
		return nil // the server lists the object later, or a lifecycle rule has removed the object
	}
	now := entries[at].Modified
	var outdated []snapshot.Entry
	for _, of := range byNode(entries) {
		newest := slices.MaxFunc(of, func(x, y snapshot.Entry) int { return x.Modified.Compare(y.Modified) })
		if now.Sub(newest.Modified) > keepFor {
			outdated = append(outdated, of...)
		}
	}
	for _, e := range outdated[:min(maxSwept, len(outdated))] {
		if err := b.remove(ctx, e.Path); err != nil {
			return err
		}
	}
	if err := b.abortUploads(ctx, "", now.Add(-sweepEvery)); err != nil || len(outdated) > maxSwept {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.swept = time.Now()
	return nil
}

// remove removes the snapshot at a path.
func (b *Bucket) remove(ctx context.Context, path string) error {
	key := b.prefix + path
	err := b.request(ctx, func(ctx context.Context, _ *time.Timer) error {
		return b.client.RemoveObject(ctx, b.bucket, key, minio.RemoveObjectOptions{})
	})
	if err = unlessRefused(err); err != nil {
		return fmt.Errorf("removing %s: %w", key, err)
	}
	return nil
}

// abortUploads aborts at most maxSwept uploads of snapshots whose keys begin with the prefix of the
// Bucket followed by under. If the argument before is not zero, it aborts only uploads that began
// before that time.
func (b *Bucket) abortUploads(ctx context.Context, under string, before time.Time) error {
	var uploads []minio.ObjectMultipartInfo
	err := b.request(ctx, func(ctx context.Context, silence *time.Timer) (err error) {
		for info := range b.client.ListIncompleteUploads(ctx, b.bucket, b.prefix+under, true) { // read to the end, because otherwise a goroutine leaks
			silence.Reset(b.timeout)
			_, _, ours := parseName(strings.TrimPrefix(info.Key, b.prefix))
			switch {
			case info.Err != nil:
				err = info.Err
			case ours && len(uploads) < maxSwept && (before.IsZero() || info.Initiated.Before(before)):
				uploads = append(uploads, info)
			}
		}
		return err
	})
	if err = unlessRefused(err); err != nil {
		return fmt.Errorf("listing the uploads under %s: %w", b.prefix+under, err)
	}
	for _, u := range uploads {
		err := b.request(ctx, func(ctx context.Context, _ *time.Timer) error {
			return b.client.AbortMultipartUpload(ctx, b.bucket, u.Key, u.UploadID)
		})
		if err = unlessRefused(err); err != nil {
			return fmt.Errorf("aborting an upload of %s: %w", u.Key, err)
		}
	}
	return nil
}

// unlessRefused returns err. But it returns nil if the server does not implement the request, if
// the server does not permit the request with these credentials, or if the upload no longer exists.
func unlessRefused(err error) error {
	response := minio.ToErrorResponse(err)
	switch response.StatusCode {
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return nil
	}
	if response.Code == minio.NoSuchUpload {
		return nil
	}
	return err
}
