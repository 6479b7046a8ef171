package gossip

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

var dawn = time.Unix(1_000_000, 0)

// maxEpoch is the greatest epoch and turn that a member may have.
const maxEpoch = 1 << 48

func TestRosterOutOfBoundsIsRefused(t *testing.T) {
	good := wireRecord{Name: "b", Addr: "b:1", Region: "r", Born: 1, State: detect.Joining}
	with := func(change func(*wireRecord)) rosterMessage {
		r := good
		change(&r)
		return rosterMessage{Version: version, Records: []wireRecord{good, r}}
	}
	for about, c := range map[string]struct {
		m    rosterMessage
		want string // empty if the message is accepted
	}{
		"a valid record":                          {with(func(*wireRecord) {}), ""},
		"the last epoch and turn":                 {with(func(r *wireRecord) { r.Epoch, r.Turn = maxEpoch, maxEpoch }), ""},
		"the last tombstone that can be answered": {with(func(r *wireRecord) { r.Epoch, r.Gone = maxEpoch-1, true }), ""},
		"the version before":                      {rosterMessage{Version: version - 1}, "version 0"},
		"the version after":                       {rosterMessage{Version: version + 1}, "version 2"},
		"too many records":                        {rosterMessage{Version: version, Records: slices.Repeat([]wireRecord{good}, detect.MaxRecords+1)}, "8193 records"},
		"as many records as allowed":              {rosterMessage{Version: version, Records: slices.Repeat([]wireRecord{good}, detect.MaxRecords)}, ""},
		"no name":                                 {with(func(r *wireRecord) { r.Name = "" }), "record 1 is out of bounds"},
		"a long name":                             {with(func(r *wireRecord) { r.Name = strings.Repeat("b", detect.MaxName+1) }), "record 1 is out of bounds"},
		"no address":                              {with(func(r *wireRecord) { r.Addr = "" }), "record 1 is out of bounds"},
		"a long address":                          {with(func(r *wireRecord) { r.Addr = strings.Repeat("b", detect.MaxAddr+1) }), "record 1 is out of bounds"},
		"a long region":                           {with(func(r *wireRecord) { r.Region = strings.Repeat("b", detect.MaxRegion+1) }), "record 1 is out of bounds"},
		"an epoch that leaves no room":            {with(func(r *wireRecord) { r.Epoch = maxEpoch + 1 }), "record 1 is out of bounds"},
		"a tombstone that cannot be answered":     {with(func(r *wireRecord) { r.Epoch, r.Gone = maxEpoch, true }), "record 1 is out of bounds"},
		"a turn that leaves no room":              {with(func(r *wireRecord) { r.Turn = maxEpoch + 1 }), "record 1 is out of bounds"},
		"a state that no member announces":        {with(func(r *wireRecord) { r.State = detect.Dead }), "record 1 is out of bounds"},
		"a tombstone of the future":               {with(func(r *wireRecord) { r.Gone, r.Age = true, -1 }), "record 1 is out of bounds"},
	} {
		records, err := DecodeRecords(Encode(c.m), dawn)
		if c.want == "" {
			require.NoError(t, err, about)
			require.Len(t, records, len(c.m.Records), about)
			continue
		}
		require.ErrorContains(t, err, c.want, about)
	}
	_, err := DecodeRecords(make([]byte, maxRecordBytes+1), dawn)
	require.ErrorContains(t, err, "the maximum is")
	ahead := detect.Record{Name: "b", Addr: "b:1", Gone: dawn.Add(time.Hour)} // by a clock that has stepped back since
	records, err := DecodeRecords(EncodeRecords([]detect.Record{ahead}, dawn), dawn)
	require.NoError(t, err)
	require.Equal(t, dawn, records[0].Gone)
}

func TestReceivedAgeIsBounded(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, maxAge: maxAge, maxAge + 1: maxAge, math.MaxInt64: maxAge} {
		r := wireRecord{Name: "b", Addr: "b:1", State: detect.Joining, Gone: true, Age: age}
		records, err := DecodeRecords(Encode(rosterMessage{Version: version, Records: []wireRecord{r}}), dawn)
		require.NoError(t, err)
		require.Equal(t, want, dawn.Sub(records[0].Gone), "%v", age)
	}
}

func TestMetadataOutOfBoundsIsRefused(t *testing.T) {
	good := metadata{Version: version, Addr: "b:1", Region: "r", Seed: make([]byte, 16), Born: 1, State: detect.Joining}
	for about, c := range map[string]struct {
		name   string
		change func(*metadata)
		good   bool
	}{
		"a valid record":                   {"b", func(*metadata) {}, true},
		"the last epoch and turn":          {"b", func(m *metadata) { m.Epoch, m.Turn = maxEpoch, maxEpoch }, true},
		"the version before":               {"b", func(m *metadata) { m.Version-- }, false},
		"the version after":                {"b", func(m *metadata) { m.Version++ }, false},
		"a short Seed":                     {"b", func(m *metadata) { m.Seed = m.Seed[1:] }, false},
		"a long Seed":                      {"b", func(m *metadata) { m.Seed = make([]byte, 17) }, false},
		"no name":                          {"", func(*metadata) {}, false},
		"no address":                       {"b", func(m *metadata) { m.Addr = "" }, false},
		"a long region":                    {"b", func(m *metadata) { m.Region = strings.Repeat("r", detect.MaxRegion+1) }, false},
		"an epoch that leaves no room":     {"b", func(m *metadata) { m.Epoch = maxEpoch + 1 }, false},
		"a turn that leaves no room":       {"b", func(m *metadata) { m.Turn = maxEpoch + 1 }, false},
		"a state that no member announces": {"b", func(m *metadata) { m.State = detect.Dead }, false},
	} {
		m := good
		c.change(&m)
		_, err := decodeMetadata(c.name, Encode(m))
		require.Equal(t, c.good, err == nil, about)
	}
	_, err := decodeMetadata("b", append(Encode(good), make([]byte, 512)...))
	require.ErrorIs(t, err, errMetadata)
}

func FuzzRecordsFromTheNetwork(f *testing.F) {
	f.Add(EncodeRecords([]detect.Record{{Name: "a", Addr: "a:1"}, {Name: "b", Addr: "b:1", Gone: dawn.Add(-time.Second)}}, dawn))
	f.Add([]byte{})
	f.Add([]byte("\xdd\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := DecodeRecords(b, dawn)
		if err != nil {
			return
		}
		r := detect.NewRoster(detect.Record{Name: "self", Addr: "self:1"}, time.Minute)
		r.Merge(records, dawn)
		r.Tick(dawn, dawn.Add(time.Hour), func(string) bool { return true })
		_, err = DecodeRecords(EncodeRecords(r.Records(), dawn), dawn)
		require.NoError(t, err)
		_, _ = decodeMetadata("a", b)
	})
}
