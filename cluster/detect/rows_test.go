package detect

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRowsOutOfBoundsAreRefused(t *testing.T) {
	many := make([]uint64, maxNamed+1)
	for i := range many {
		many[i] = uint64(i)
	}
	widest := Row{About: 1, Number: maxRowNumber, Connected: many[:maxNamed], Refused: many[:maxNamed], Silent: many[:maxNamed]}
	require.LessOrEqual(t, widest.size(), MaxRows)
	encoded := AppendRows(nil, []Row{widest, {About: 2}})
	require.Len(t, encoded, widest.size()+rowHeader)
	rows, err := ParseRows(encoded)
	require.NoError(t, err)
	require.Equal(t, []Row{widest, {About: 2}}, rows)
	for name, row := range map[string]Row{
		"too many members":         {Connected: many},
		"a member twice":           {Refused: []uint64{1, 1}},
		"members out of order":     {Silent: []uint64{2, 1}},
		"a number above the bound": {Number: 1 << 60},
	} {
		_, err := ParseRows(AppendRows(nil, []Row{row}))
		require.Error(t, err, name)
	}
	for cut := range encoded {
		if cut > 0 && cut != widest.size() {
			_, err := ParseRows(encoded[:cut])
			require.Error(t, err)
		}
	}
}

// Each hop refuses a row with a number above the bound, and closes the connection.
func TestOwnRowNumberExceedsReceivedNumber(t *testing.T) {
	c := connected("a")
	for _, number := range []uint64{5, maxRowNumber} {
		c.Merge("a", []Row{{About: MemberID("self"), Number: number}})
		own := rowsOf(c)[0]
		require.Equal(t, min(number+1, maxRowNumber), own.Number)
		require.Equal(t, []uint64{MemberID("a")}, own.Connected)
		_, err := ParseRows(AppendRows(nil, []Row{own}))
		require.NoError(t, err)
	}
}

func FuzzRows(f *testing.F) {
	f.Add(AppendRows(nil, []Row{{About: MemberID("a"), Number: 2, Connected: []uint64{3, 4}, Silent: []uint64{5}}, {About: MemberID("self"), Number: 7}}))
	f.Add(binary.BigEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		rows, err := ParseRows(b)
		if err != nil {
			return
		}
		require.Equal(t, string(b), string(AppendRows(nil, rows)))
		c := NewConnectivity("self")
		c.SetMembers([]string{"a", "b"})
		c.Merge("b", rows)
		c.Arrange([]string{"a", "b", "self"}, 3, atMS(0))
		c.Connections([]string{"a", "self", "x"})
	})
}

// A row may arrive before the member does, and there may be any number of such rows.
func TestRowsOfUnknownMembersAreBounded(t *testing.T) {
	c := NewConnectivity("self")
	c.SetMembers([]string{"a"})
	var rows []Row
	for i := range 2 * maxStrangers {
		rows = append(rows, Row{About: MemberID(fmt.Sprint(i)), Number: 1, Connected: []uint64{MemberID("a")}})
	}
	c.Merge("a", rows)
	require.Len(t, c.rows, maxStrangers+2)
	last := fmt.Sprint(2*maxStrangers - 1)
	c.SetMembers([]string{"a", last})
	names := []string{last, "a", "self"}
	require.Equal(t, []int{1}, c.Connections(names).Connected[0])
}

func TestRowsAreSentOnceAndNotBack(t *testing.T) {
	c := connected("a", "b")
	var toA, toB Feed
	next := func(f *Feed, to string, ms int) (about []uint64, wait time.Duration) {
		rows, upTo, wait := c.News(f, to, atMS(ms))
		for _, r := range rows {
			about = append(about, r.About)
		}
		if len(rows) > 0 {
			f.Sent(upTo, atMS(ms))
		}
		return about, wait
	}
	expect := func(f *Feed, to string, ms int, want []uint64, wait int) {
		t.Helper()
		about, waits := next(f, to, ms)
		require.Equal(t, want, about)
		require.Equal(t, time.Duration(wait)*time.Millisecond, waits)
	}
	self, b := MemberID("self"), MemberID("b")
	expect(&toA, "a", 0, []uint64{self}, 0)
	expect(&toB, "b", 0, []uint64{self}, 0)
	expect(&toA, "a", 1, nil, 0)
	c.Merge("b", []Row{{About: b, Number: 1, Connected: slices.Sorted(slices.Values([]uint64{self}))}})
	expect(&toA, "a", 2, nil, 48)
	c.RecordFailure("b", atMS(10))
	expect(&toA, "a", 50, []uint64{b, self}, 0)
	expect(&toB, "b", 50, []uint64{self}, 0)
	expect(&toB, "b", 200, nil, 0)

	for i := range 3 {
		c.Merge("b", []Row{{About: uint64(i), Number: 1, Connected: slices.Repeat([]uint64{1}, MaxRows/8/2-10)}})
	}
	expect(&toA, "a", 300, []uint64{0, 1}, 0)
	expect(&toA, "a", 300, nil, 50)
	expect(&toA, "a", 350, []uint64{2}, 0)
	expect(&toB, "b", 350, nil, 0)

	of := func(number uint64) []Row { return []Row{{About: 9, Number: number}} }
	c.Merge("b", of(1))
	c.Merge("a", of(1)) // a has it from another member
	expect(&toA, "a", 400, nil, 0)
	c.Merge("b", of(2))
	expect(&toA, "a", 500, []uint64{9}, 0)
}

// In a large cluster, several changes of a row travel in one message. The rows of a large table, such as those
// that a new connection receives, do not wait for changes.
func TestRowsOfLargeClusterTravelAtLongerPace(t *testing.T) {
	c := NewConnectivity("self")
	c.SetMembers(crowdNames(500))
	var f Feed
	expect := func(ms, want int, wait time.Duration) {
		t.Helper()
		rows, upTo, waits := c.News(&f, "0", atMS(ms))
		require.Len(t, rows, want)
		require.Equal(t, wait*time.Millisecond, waits)
		if len(rows) > 0 {
			f.Sent(upTo, atMS(ms))
		}
	}
	change := func(number uint64, rows int) {
		for i := range rows {
			c.Merge("1", []Row{{About: uint64(i), Number: number, Connected: []uint64{1, 2, 3}[:number%3]}})
		}
	}
	expect(0, 1, 0)
	change(1, 1)
	expect(10, 0, 90)
	change(2, 1)
	expect(100, 1, 0)
	change(3, MaxRows/rowHeader+1)
	expect(200, MaxRows/rowHeader, 0)
	expect(210, 0, 40)
	expect(250, 1, 0)
	change(4, 1)
	expect(300, 0, 50)
	expect(350, 1, 0)
}
