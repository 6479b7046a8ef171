package regions

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// newNear returns the Regions of a node that is alone in its region, and its log. far is a node of the other
// region.
func newNear(t *testing.T, far cluster.Peer) (*Regions, *bytes.Buffer) {
	var log bytes.Buffer
	n := newNode("near", "far", slog.New(slog.NewTextHandler(&log, nil)), func() cluster.Peer { return far })
	t.Cleanup(func() { _ = n.Close(func() error { return nil }) })
	return n.Regions, &log
}

// During a rolling change of RegionShares, the nodes of a region differ. The log does not get a
// line for each exchange.
func TestAlternatingDisagreementIsLoggedOnce(t *testing.T) {
	n, log := newNear(t, nil)
	print := n.Holdings.Exchange(nil).Print
	for range 100 {
		n.Learn("far", countsync.Exchange{Region: "far", Print: print + 1})
		n.Learn("far", countsync.Exchange{Region: "far", Print: print})
	}
	require.EqualValues(t, 100, n.Stats()["far"].Disputed)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "region=far unlogged=0")
}

// answering is a node that answers each request with the same bytes.
type answering struct {
	cluster.Peer
	body []byte
}

func (a answering) Ask(context.Context, []byte, []byte, time.Duration) ([]byte, error) {
	return append(wire.AppendResponse(nil, wire.Done, 0), a.body...), nil
}

func TestMissingAndMalformedAnswersAreUnanswered(t *testing.T) {
	for name, c := range map[string]struct {
		far      cluster.Peer
		answered bool
	}{
		"no node":          {nil, false},
		"malformed answer": {answering{body: []byte("garbage")}, false},
		"answer":           {answering{body: (&countsync.Exchange{Region: "far"}).Append(nil)}, true},
	} {
		n, _ := newNear(t, c.far)
		n.sendStatements("far", []countsync.Statement{{ID: bucket.ID{Hi: 1}}})
		require.Eventually(t, func() bool { s := n.Stats()["far"]; return s.Unanswered == 1 || s.Disputed == 1 }, time.Minute, time.Millisecond, name)
		s := n.Stats()["far"]
		require.Equal(t, []bool{!c.answered, c.answered, c.answered}, []bool{s.Unanswered > 0, s.Reached, s.Received > 0}, name)
	}
}
