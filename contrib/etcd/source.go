package etcdrules

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weir-go/weir/rules"
)

// Source reads a key of etcd. It is a rules.Source for one Book.
type Source struct {
	options Options
	client  *clientv3.Client // nil if there is no connection
}

// New returns a Source. The Source connects in Next, so an unavailable server is not an error
// here. The error is weir.ErrInvalid, and names the remedy.
func New(o Options) (*Source, error) {
	o, err := o.normalize()
	if err != nil {
		return nil, err
	}
	return &Source{options: o}, nil
}

// Name returns the endpoints and the key, without user and password.
func (s *Source) Name() string {
	var hosts []string
	for _, endpoint := range s.options.Client.Endpoints {
		if _, after, found := strings.Cut(endpoint, "://"); found {
			endpoint = after
		}
		hosts = append(hosts, endpoint[strings.LastIndex(endpoint, "@")+1:])
	}
	return "etcd://" + strings.Join(hosts, ",") + "/" + strings.TrimPrefix(s.options.Key, "/")
}

// Next returns the present text as soon as its version differs from the argument known. A missing
// key is an error that wraps fs.ErrNotExist. After any other error, the next call connects
// again.
func (s *Source) Next(ctx context.Context, known string) (rules.Text, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	text, err := s.nextText(ctx, known)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = s.Close()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: no endpoint with a quorum has answered within %v", err, s.options.Client.DialTimeout)
	}
	return text, err
}

// Close closes the connections. The Book of the Source calls it.
func (s *Source) Close() error {
	if s.client != nil {
		_ = s.client.Close() // the client is closed even if Close returns an error
		s.client = nil
	}
	return nil
}

// nextText does the work of Next. It reads the key at once, after each change, and after each
// poll interval.
func (s *Source) nextText(ctx context.Context, known string) (rules.Text, error) {
	if err := s.connect(ctx); err != nil {
		return rules.Text{}, fmt.Errorf("etcdrules: connect: %w", err)
	}
	var changes clientv3.WatchChan
	for {
		text, revision, err := s.present(ctx)
		if err != nil || text.Version != known {
			return text, err
		}
		if changes == nil {
			changes = s.watch(ctx, revision+1)
		}
		switch err := s.await(ctx, changes); {
		case errors.Is(err, rpctypes.ErrCompacted):
			changes = nil // the next read returns a later revision
		case err != nil:
			return rules.Text{}, fmt.Errorf("etcdrules: watch: %w", err)
		}
	}
}

// connect ensures that there is a client. clientv3.New waits only if there is a user to authenticate.
func (s *Source) connect(ctx context.Context) (err error) {
	if s.client == nil {
		config := s.options.Client
		life, end := context.WithCancel(context.Background())
		defer context.AfterFunc(ctx, end)()
		config.Context = life
		s.client, err = clientv3.New(config)
	}
	return err
}

// present returns the present text, and the revision of the store at which the text was read. The
// read is linearizable. The version of the text is its hash, because after a restored backup, the
// same revision may have another value.
func (s *Source) present(ctx context.Context) (rules.Text, int64, error) {
	limited, cancel := context.WithTimeout(ctx, s.options.Client.DialTimeout)
	defer cancel()
	response, err := s.client.Get(limited, s.options.Key)
	switch {
	case err != nil:
		return rules.Text{}, 0, fmt.Errorf("etcdrules: read: %w", err)
	case len(response.Kvs) == 0:
		return rules.Text{}, 0, fmt.Errorf("etcdrules: there is no key %q: put the text of the rules there: %w", s.options.Key, fs.ErrNotExist)
	}
	text := response.Kvs[0].Value
	version := fmt.Sprintf("%x", sha256.Sum256(text))
	return rules.Text{Name: s.options.Key, Bytes: text, Version: version}, response.Header.Revision, nil
}

// watch watches the key from a revision on, until ctx is done. If the server does not confirm
// the watch within DialTimeout, the channel is closed.
func (s *Source) watch(ctx context.Context, revision int64) clientv3.WatchChan {
	watching, stop := context.WithCancel(ctx)
	late := time.AfterFunc(s.options.Client.DialTimeout, stop)
	defer late.Stop()
	return s.client.Watch(watching, s.options.Key, clientv3.WithRev(revision))
}

// await waits for a change, at most for the poll interval.
func (s *Source) await(ctx context.Context, changes clientv3.WatchChan) error {
	poll := time.NewTimer(s.options.Poll)
	defer poll.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-poll.C:
		return nil
	case change, open := <-changes:
		if !open {
			return errors.New("the watch ended without an error")
		}
		return change.Err()
	}
}
