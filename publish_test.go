package weir

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/wire"
)

// publishBody returns the body of a request that publishes a value. If the value is empty, the
// body is that of a tombstone.
func publishBody(name string, version uint64, value string) []byte {
	b := wire.AppendText(binary.AppendUvarint(wire.AppendText(nil, name), version), value)
	if value == "" {
		b = append(b, 0) // the age of the tombstone
	}
	return b
}

func TestPublishedDoesNotAllocateAndIsCounted(t *testing.T) {
	n := solo(t, Config{})
	require.NoError(t, n.Publish("b/1", 0, []byte("one")))
	require.NoError(t, n.Publish("b/2", 7, []byte("two")))
	require.NoError(t, n.Publish("c", 0, []byte("three")))
	require.NoError(t, n.Publish("b/1", 0, nil))
	values, revision := n.Published("b/")
	require.Equal(t, []Published{{"b/2", 7, []byte("two")}}, values)
	require.Equal(t, PublishedStats{Values: 2, Tombstones: 1, Bytes: 15, Revision: revision}, n.Stats().Published)
	require.Zero(t, testing.AllocsPerRun(100, func() { n.Published("b/") }))
}

func TestPublishedAfterWaitsForTheNextChange(t *testing.T) {
	n := solo(t, Config{})
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	_, before := n.Published("")
	waits := n.PublishedAfter(before)
	require.False(t, isClosed(waits))
	require.NoError(t, n.Publish("a", 0, []byte("one")))
	require.True(t, isClosed(waits))
	_, revision := n.Published("")
	waits = n.PublishedAfter(revision)
	require.True(t, isClosed(n.PublishedAfter(before)), "the values have changed since this revision")
	require.False(t, isClosed(waits), "the values have not changed since this revision")
	require.NoError(t, n.Publish("a", 0, nil))
	require.True(t, isClosed(waits))
	require.NoError(t, n.Close())
}

func TestPublishRefusesAnInvalidValue(t *testing.T) {
	n := solo(t, Config{})
	require.ErrorIs(t, n.Publish("", 1, nil), ErrInvalid)
	require.ErrorContains(t, n.Publish("", 1, nil), "weir: invalid name: it has 0 bytes")
	require.NoError(t, n.Close())
	require.ErrorIs(t, n.Publish("name", 0, nil), ErrClosed)
}

// A value must be replaceable after its publisher has gone, even if its version is very high. A
// node either refuses such a version, or accepts the value and replaces it when a new value is
// published.
func TestPublishedValueOfAnyVersionIsReplaceable(t *testing.T) {
	t.Parallel()
	now := uint64(time.Now().UnixNano())
	log := new(logbook)
	nodes := fleet(t, 2, func(_ int, cfg *Config) { cfg.Logger = log.logger() })
	for about, c := range map[string]struct {
		version uint64
		value   string
		held    bool
	}{
		"the highest version of all":          {math.MaxUint64, "left", false},
		"the second highest version":          {math.MaxUint64 - 1, "left", false},
		"a deletion with the highest version": {math.MaxUint64, "", false},
		"the year 2262":                       {math.MaxInt64, "left", false},
		"two days ahead":                      {now + uint64(48*time.Hour), "left", false},
		"23 hours ahead":                      {now + uint64(23*time.Hour), "left", true},
		"a deletion 23 hours ahead":           {now + uint64(23*time.Hour), "", true},
		"a version counted from 1":            {1, "left", true},
	} {
		t.Run(about, func(t *testing.T) {
			serveFrom(nodes[0], "", append(wire.Header{Op: wire.OpPublish}.Append(nil), publishBody(about, c.version, c.value)...))
			require.Equal(t, c.held && c.value != "", published(nodes[0]) == about+"=left ", published(nodes[0]))

			require.NoError(t, nodes[1].Publish(about, 0, []byte("set")))
			require.NoError(t, nodes[0].Publish(about, 0, []byte("set anew")))
			for _, n := range nodes {
				lab.Eventually(t, "the value is replaced", func() bool { return published(n) == about+"=set anew " })
			}
			require.NoError(t, nodes[1].Publish(about, 0, nil))
			for _, n := range nodes {
				lab.Eventually(t, "the value is deleted", func() bool { return published(n) == "" })
			}
		})
	}
	require.NotEmpty(t, log.Lines("version is too far ahead"))
}

func published(n *Node) (s string) {
	values, _ := n.Published("")
	for _, p := range values {
		s += fmt.Sprintf("%s=%s ", p.Name, p.Value)
	}
	return s
}
