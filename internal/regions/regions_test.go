package regions

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	countsync "github.com/weir-go/weir/sync"
)

// newNear returns the Regions of a node that is alone in its region, and its log.
func newNear(t *testing.T) (*Regions, *bytes.Buffer) {
	var log bytes.Buffer
	n := newNode("near", "far", slog.New(slog.NewTextHandler(&log, nil)), func() cluster.Peer { return nil })
	t.Cleanup(func() { _ = n.Close(func() error { return nil }) })
	return n.Regions, &log
}

// During a rolling change of RegionShares, the nodes of a region differ. The log does not get a
// line for each exchange.
func TestAlternatingDisagreementIsLoggedOnce(t *testing.T) {
	n, log := newNear(t)
	print := n.Holdings.Exchange(nil).Print
	for range 100 {
		n.Learn("far", countsync.Exchange{Region: "far", Print: print + 1})
		n.Learn("far", countsync.Exchange{Region: "far", Print: print})
	}
	require.EqualValues(t, 100, n.Stats()["far"].Disputed)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "region=far unlogged=0")
}

// If a region is not reached, statements to it count as unanswered.
func TestStatementsToMissingRegionAreUnanswered(t *testing.T) {
	n, _ := newNear(t)
	n.sendStatements("far", []countsync.Statement{{ID: bucket.ID{Hi: 1}}})
	require.Eventually(t, func() bool { return n.Stats()["far"].Unanswered == 1 }, time.Minute, time.Millisecond)
	require.False(t, n.Stats()["far"].Reached)
}
