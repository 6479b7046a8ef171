package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	s3snapshot "github.com/weir-go/weir/contrib/s3"
	"github.com/weir-go/weir/snapshot"
)

// bucketWait bounds a command that reads from a bucket.
const bucketWait = 10 * time.Minute

// isBucket reports whether -snapshots names a bucket by a valid or an invalid URL, and not a
// directory.
func isBucket(where string) bool {
	return strings.Contains(where, "://") || strings.HasPrefix(strings.ToLower(where), "s3:")
}

// checkSnapshots returns an error if -snapshots is an invalid URL of a bucket.
func checkSnapshots(where string) error {
	if !isBucket(where) {
		return nil
	}
	_, err := s3snapshot.ParseURL(where)
	return err
}

// openSnapshots opens the directory or bucket of -snapshots.
func openSnapshots(where string) (store snapshot.Store, release func() error, err error) {
	if isBucket(where) {
		bucket, err := openBucket(where)
		if err != nil {
			return nil, nil, err
		}
		return bucket, bucket.Close, nil
	}
	dir, err := snapshot.OpenDir(where, snapshot.DirOptions{})
	if err != nil {
		return nil, nil, err
	}
	return dir, func() error { return closeDirectory(dir) }, nil
}

func openBucket(url string) (*s3snapshot.Bucket, error) {
	options, err := s3snapshot.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return s3snapshot.New(options)
}

// place is a location of snapshots: a directory, a bucket, or a single snapshot.
type place struct {
	list func() ([]snapshot.Entry, error)
	// read calls do with a snapshot. The error is fs.ErrNotExist if the snapshot does not
	// exist.
	read func(path string, do func(r io.Reader) error) error
	name func(path string) string // the printed name
	end  func()
}

func openPlace(where string) (*place, error) {
	if isBucket(where) {
		return bucketPlace(where)
	}
	return &place{
		list: func() ([]snapshot.Entry, error) {
			info, err := os.Stat(where)
			if err == nil && !info.IsDir() {
				path, err := filepath.EvalSymlinks(where)
				return []snapshot.Entry{{Path: path, Bytes: info.Size(), Modified: info.ModTime()}}, err
			}
			return snapshot.List(where)
		},
		read: func(path string, do func(r io.Reader) error) error {
			file, err := snapshot.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			return do(file)
		},
		name: filepath.Base,
		end:  func() {},
	}, nil
}

func bucketPlace(where string) (*place, error) {
	where, one := cutObject(where)
	bucket, err := openBucket(where)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), bucketWait)
	return &place{
		list: func() ([]snapshot.Entry, error) {
			if one != "" {
				return []snapshot.Entry{{Path: one}}, nil
			}
			return bucket.List(ctx)
		},
		read: func(path string, do func(r io.Reader) error) error { return bucket.Get(ctx, path, do) },
		name: func(path string) string { return path },
		end:  func() { cancel(); _ = bucket.Close() },
	}, nil
}

// cutObject splits the URL of a snapshot, s3://BUCKET/PREFIX/NODE/GENERATION.snapshot,
// into the URL of the place and the path. The path is "" if the URL has no snapshot.
func cutObject(url string) (bucket, path string) {
	before, parameters, has := strings.Cut(url, "?")
	if has {
		parameters = "?" + parameters
	}
	parts := strings.Split(before, "/")
	if n := len(parts); n > 4 && strings.HasSuffix(before, ".snapshot") { // s3:, an empty part, BUCKET, NODE and GENERATION.snapshot
		return strings.Join(parts[:n-2], "/") + parameters, strings.Join(parts[n-2:], "/")
	}
	return url, ""
}

// singlePath returns the path of a place that is a single snapshot.
func (p *place) singlePath(where string) (path string, err error) {
	entries, err := p.list()
	if err != nil {
		return "", err
	}
	if len(entries) != 1 || entries[0].Node != "" {
		return "", fmt.Errorf("the argument is a directory or bucket, not a snapshot: name one of the snapshots that `weir snapshot list %s` prints", where)
	}
	return entries[0].Path, nil
}
