package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzParse parses arbitrary bytes from another node, and imports the result as a count.
func FuzzParse(f *testing.F) {
	for i, a := range algorithms {
		l := &Limit{Algorithm: a, Rate: 10, Per: time.Second}
		s, c := newStore(1, 1), &Count{}
		s.Take(ID{}, l, epoch, 3)
		s.Take(ID{}, l, epoch+7, 1)
		s.Take(ID{}, l, epoch+int64(time.Second), 2)
		s.Export(ID{}, epoch+int64(time.Second), Mark{}, c)
		f.Add(uint8(i), c.Append(nil), int64(1), epoch)
	}
	f.Add(uint8(1), []byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f}, int64(-1), int64(0))
	f.Fuzz(func(t *testing.T, algorithm uint8, b []byte, extra, now int64) {
		l := Limit{Algorithm: algorithms[int(algorithm)%len(algorithms)], Rate: 1000, Per: time.Second}
		c := &Count{Limit: l}
		rest, err := c.Parse(b)
		if err != nil {
			require.True(t, c.empty())
			require.ErrorIs(t, err, errCount)
		} else {
			require.Less(t, len(rest), len(b))
			require.LessOrEqual(t, c.x, uint64(maxUsed))
			again := &Count{Limit: l}
			_, err := again.Parse(c.Append(nil))
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
		require.LessOrEqual(t, len(c.entries), len(b))
		s := newStore(2, 1)
		s.Track(1, 1, nil)
		id := ID{1, 2}
		s.Take(id, &Limit{Algorithm: FixedWindow, Rate: 5, Per: time.Minute, Version: uint64(algorithm) % 2}, now, 2)
		for range 2 {
			s.Import(id, c, now, extra)
			checkStore(t, s)
			used, _, ok := s.Used(id, now)
			require.Equal(t, ok, used > 0)
			s.Peek(id, &l, now, 1)
			s.Refund(id, &l, now, extra, 0, false)
			s.Debit(id, &l, now, 7)
			s.Export(id, now, Mark{}, &Count{})
		}
	})
}

func TestParseRejectsInvalidCounts(t *testing.T) {
	log := Limit{Algorithm: SlidingLog, Rate: 10, Per: time.Second}
	for _, test := range []struct {
		name    string
		limit   Limit
		b       []byte
		message string
	}{
		{"empty", Limit{Per: time.Second}, nil, "the remaining 0 bytes contain no complete number"},
		{"truncated count", Limit{Per: time.Second}, []byte{1, 2}, "the remaining 0 bytes contain no complete number"},
		{"unterminated number", Limit{Per: time.Second}, []byte{0xff, 0xff}, "the remaining 2 bytes contain no complete number"},
		{"fraction of a whole unit", Limit{Algorithm: TokenBucket, Per: 5}, []byte{0, 1, 5}, "the fraction of a unit is 5/5, and must be below 1"},
		{"missing log", log, []byte{0, 5, 1}, "the log has 5 bytes, but only 1 bytes remain"},
		{"entry without units", log, []byte{0, 2, 1, 1}, "an entry of the log has the units field 1,"},
		{"entry that differs when read backwards", log, []byte{0, 2, 1, 4}, "an entry of the log has the units field 4,"},
		{"log longer than Per", log, []byte{0, 7, 2, 0xfe, 0xff, 0xff, 0xff, 0xff, 0x0f}, "the log is longer than its Per of 1s"},
	} {
		c := &Count{Limit: test.limit}
		_, err := c.Parse(test.b)
		require.ErrorContains(t, err, test.message, test.name)
		require.True(t, c.empty(), test.name)
		require.Equal(t, test.limit, c.Limit, test.name)
	}
}
