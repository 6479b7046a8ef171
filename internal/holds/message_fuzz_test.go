package holds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

func TestMessagesRoundTrip(t *testing.T) {
	const now = int64(time.Hour)
	o := withUnits(&Hold{ref: ref{bucket.ID{Hi: 1, Lo: 2}, 5, 3}}, 4)
	m, err := parseRenew(appendDigests(nil, 5, []shardDigest{{0, 1}, {255, 2}}), now)
	require.NoError(t, err)
	require.Equal(t, renewMessage{holder: 5, digests: []shardDigest{{0, 1}, {255, 2}}}, m)
	for _, kind := range []byte{kindList, kindEnded} {
		m, err = parseRenew(appendListed(append64([]byte{kind}, 5), o), now)
		require.NoError(t, err)
		require.Equal(t, renewMessage{kind: kind, holder: 5, list: []entry{o.entry(now)}}, m)
	}
	m, err = parseRenew(appendConfirm(nil, 5, []ref{o.ref}), now)
	require.NoError(t, err)
	require.Equal(t, renewMessage{kind: kindConfirm, holder: 5, list: []entry{{ref: o.ref, renewed: now}}}, m)
	p := page{7, 11, 9, countsync.Ranges{{First: 1, Last: 2}, {First: 5, Last: 6}}}
	parsed, err := parsePage(p.append(nil))
	require.NoError(t, err)
	require.Equal(t, p, parsed)
	e := o.entry(now - int64(time.Second))
	c := record{ref: e.ref, units: 4, renewal: 1<<tagBits | 5, expires: now + int64(time.Second), forget: now + int64(time.Hour), released: true}
	next, list, records, err := parseHeld(appendRecord(append(appendEntry(p.appendAt(nil), &e, now), itemRecord), &c, now), now)
	require.NoError(t, err)
	require.Equal(t, page{part: 7, before: 9}, next)
	require.Equal(t, []entry{e}, list)
	require.Equal(t, []record{c}, records)
	m, err = parseRenew(appendRecord(beginRecords(5, time.Minute), &c, now), now)
	require.NoError(t, err)
	require.Equal(t, renewMessage{kind: kindRecords, holder: 5, date: time.Minute, records: []record{c}}, m)
	c.expires, c.forget = now+1, now+2
	m, err = parseRenew(appendRecord(beginRecords(5, time.Minute), &c, now), now)
	require.NoError(t, err)
	require.Equal(t, now+int64(time.Millisecond), m.records[0].expires, "the expiry is rounded up")
}

// FuzzMessages checks that a message of another member is malformed, or has units and times in the
// ranges that a table can compute with.
func FuzzMessages(f *testing.F) {
	const now = int64(24 * time.Hour)
	o := withUnits(&Hold{ref: ref{bucket.ID{Hi: 1, Lo: 2}, 5, 3}}, 4)
	e := o.entry(now)
	f.Add(appendDigests(nil, 5, []shardDigest{{0, 1}, {255, 2}}))
	f.Add(appendListed(append64([]byte{kindList}, 5), o))
	f.Add(appendConfirm(nil, 5, []ref{o.ref}))
	f.Add((&page{end: parts, ranges: countsync.All()}).append(nil))
	f.Add(appendEntry((&page{}).appendAt(nil), &e, now))
	c := record{ref: e.ref, units: 4, renewal: 1, expires: now + 1, forget: now + 2}
	f.Add(appendRecord(beginRecords(5, time.Minute), &c, now))
	f.Add(appendRecord(append((&page{}).appendAt(nil), itemRecord), &c, now))
	f.Fuzz(func(t *testing.T, message []byte) {
		m, err := parseRenew(message, now)
		if err != nil {
			require.ErrorIs(t, err, wire.ErrMalformed)
			m = renewMessage{}
		}
		for _, d := range m.digests {
			require.Less(t, d.shard, shards)
		}
		check := func(list []entry) {
			for _, e := range list {
				require.True(t, e.units >= 0 && e.units <= mostUnits)
				require.True(t, e.renewed >= now-int64(LongestTerm) && e.renewed <= now)
			}
		}
		checkRecords := func(list []record) {
			for _, c := range list {
				require.True(t, c.units >= 0 && c.units <= mostUnits)
				require.True(t, c.expires >= now && c.forget >= c.expires && c.forget <= now+int64(LongestTerm))
			}
		}
		check(m.list)
		checkRecords(m.records)
		if _, list, records, err := parseHeld(message, now); err == nil {
			check(list)
			checkRecords(records)
		}
		if p, err := parsePage(message); err == nil {
			require.True(t, p.part >= 0 && p.before >= 0)
		}
	})
}
