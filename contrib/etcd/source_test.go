//go:build unix

package etcdrules_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weir-go/weir/contrib/internal/sourcetest"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

func TestSourceReadsEtcd(t *testing.T) {
	s := start(t)
	sourcetest.Run(t, sourcetest.Store{
		Addr: s.Addr,
		Open: func(t *testing.T, addr string, poll, timeout time.Duration) sourcetest.Source {
			return open(t, poll, timeout, addr)
		},
		Put: s.put, Delete: s.remove, Stop: s.end, Start: s.begin,
		Password: password,
		Client:   "google.golang.org/grpc",
	})
	t.Run("CompactionLosesNoChange", func(t *testing.T) { testCompaction(t, s) })
}

// The watch is disconnected while its revision is compacted. The poll interval never passes.
func testCompaction(t *testing.T, s *server) {
	s.put(t, sourcetest.Text(1))
	proxy := lab.StartProxy(t, s.Addr)
	source := open(t, time.Hour, lab.GiveUp, proxy.Addr())
	text := sourcetest.RequireText(t, source, "", 1)
	text, err := sourcetest.NextDuring(t, source, text.Version, func() {
		proxy.SetRefusing(true)
		s.do(t, func(ctx context.Context, c *clientv3.Client) error {
			var last int64
			for range 5 {
				response, err := c.Put(ctx, "other", "x")
				if err != nil {
					return err
				}
				last = response.Header.Revision
			}
			_, err := c.Compact(ctx, last)
			return err
		})
		s.put(t, sourcetest.Text(2))
		proxy.SetRefusing(false)
	})
	require.NoError(t, err)
	require.Equal(t, sourcetest.Text(2), string(text.Bytes))
}

// A member of a cluster without a quorum serves no reads, so that its text is not taken for the
// present one.
func TestMemberWithoutLeaderIsRefused(t *testing.T) {
	testenv.SkipUnlessFull(t, "TestSourceReadsEtcd")
	var peers, initial []string
	for i := range 3 {
		peers = append(peers, lab.FreeAddr(t))
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i, peers[i]))
	}
	var members []*server
	for i := range 3 {
		m := newServer(t, fmt.Sprint("m", i), lab.FreeAddr(t), peers[i], strings.Join(initial, ","))
		m.Begin(t)
		t.Cleanup(func() { m.end(t) })
		members = append(members, m)
	}
	for _, m := range members {
		m.Await(t)
	}
	members[0].put(t, sourcetest.Text(1))
	source := open(t, 300*time.Millisecond, time.Second, members[0].Addr)
	text := sourcetest.RequireText(t, source, "", 1)
	members[1].end(t)
	members[2].end(t)
	begun := time.Now()
	_, err := source.Next(t.Context(), text.Version)
	require.Error(t, err)
	t.Logf("after %v: %v", time.Since(begun), err)

	members[1].Begin(t)
	members[1].put(t, sourcetest.Text(2))
	lab.Eventually(t, "the member has a leader again", func() bool {
		text, err := source.Next(t.Context(), "")
		return err == nil && string(text.Bytes) == sourcetest.Text(2)
	})
}
