package holds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

func TestMessagesSayWhatTheyWereMadeOf(t *testing.T) {
	const now = int64(time.Hour)
	o := &Hold{ref: ref{bucket.ID{Hi: 1, Lo: 2}, 5, 3}, units: 4, limit: &bucket.Limit{Per: time.Minute}}
	m, err := parseRenew(appendDigests(nil, 5, []shardDigest{{0, 1}, {255, 2}}), now)
	require.NoError(t, err)
	require.Equal(t, renewal{holder: 5, digests: []shardDigest{{0, 1}, {255, 2}}}, m)
	for _, kind := range []byte{kindList, kindEnded} {
		m, err = parseRenew(appendListed(append64([]byte{kind}, 5), o), now)
		require.NoError(t, err)
		require.Equal(t, renewal{kind: kind, holder: 5, list: []entry{o.entry(now)}}, m)
	}
	m, err = parseRenew(appendConfirm(nil, 5, []ref{o.ref}), now)
	require.NoError(t, err)
	require.Equal(t, renewal{kind: kindConfirm, holder: 5, list: []entry{{ref: o.ref, renewed: now}}}, m)
	p := page{7, 9, countsync.Ranges{{First: 1, Last: 2}, {First: 5, Last: 6}}}
	parsed, err := parsePage(p.append(nil))
	require.NoError(t, err)
	require.Equal(t, p, parsed)
	e := o.entry(now - int64(time.Second))
	next, list, err := parseHeld(appendEntry(p.appendAt(nil), &e, now), now)
	require.NoError(t, err)
	require.Equal(t, page{shard: 7, from: 9}, next)
	require.Equal(t, []entry{e}, list)
	c := claim{verbRelease, e.ref, int64(time.Minute)}
	got, err := parseClaim(c.append(nil))
	require.NoError(t, err)
	require.Equal(t, c, got)
}

// FuzzMessages: whatever another member sends, units and times are in the ranges that a table
// computes with, or the message is malformed.
func FuzzMessages(f *testing.F) {
	const now = int64(24 * time.Hour)
	o := &Hold{ref: ref{bucket.ID{Hi: 1, Lo: 2}, 5, 3}, units: 4, limit: &bucket.Limit{Per: time.Minute}}
	e := o.entry(now)
	f.Add(appendDigests(nil, 5, []shardDigest{{0, 1}, {255, 2}}))
	f.Add(appendListed(append64([]byte{kindList}, 5), o))
	f.Add(appendConfirm(nil, 5, []ref{o.ref}))
	f.Add((&page{ranges: countsync.All()}).append(nil))
	f.Add(appendEntry((&page{}).appendAt(nil), &e, now))
	f.Add((&claim{verbRenew, e.ref, 1}).append(nil))
	f.Fuzz(func(t *testing.T, message []byte) {
		m, err := parseRenew(message, now)
		if err != nil {
			require.ErrorIs(t, err, wire.ErrMalformed)
			m = renewal{}
		}
		for _, d := range m.digests {
			require.Less(t, d.shard, shards)
		}
		check := func(list []entry) {
			for _, e := range list {
				require.True(t, e.units >= 0 && e.units <= mostUnits)
				require.True(t, e.term >= 0 && e.term <= int64(longestTerm))
				require.True(t, e.renewed >= now-int64(longestTerm) && e.renewed <= now)
			}
		}
		check(m.list)
		if _, list, err := parseHeld(message, now); err == nil {
			check(list)
		}
		if p, err := parsePage(message); err == nil {
			require.True(t, p.shard >= 0 && p.from >= 0)
		}
		if c, err := parseClaim(message); err == nil {
			require.True(t, c.ttl >= 0 && c.ttl <= int64(longestTerm))
		}
	})
}
