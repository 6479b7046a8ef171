package lab

import (
	"math"
	"slices"
	"time"
)

// Interval is a span of time in Unix nanoseconds of the machine's clock, which all its
// processes share. Both ends belong to the interval.
type Interval struct {
	From, To int64
}

// Between returns the interval of two moments in Unix nanoseconds.
func Between(from, to int64) Interval { return Interval{from, to} }

// Length returns the length of the interval.
func (i Interval) Length() time.Duration { return time.Duration(i.To - i.From) }

// Touches reports whether the intervals have a moment in common.
func (i Interval) Touches(o Interval) bool { return i.From <= o.To && i.To >= o.From }

// Fullest describes the windows of a kind, and the window with the highest difference of
// Held and Most.
type Fullest struct {
	Windows    int    // windows of the kind with an admission
	Held, Most int64  // admissions in that window, and the bound of that window
	Of         string // key of that window
}

// An Occasion is a time that loosens the bound of each window that touches it.
type Occasion struct {
	Interval
	Kind  int   // a window has the highest kind of its occasions, and kind 0 without any
	Extra int64 // number of additional admissions that a window may hold
	Once  bool  // if a window has several occasions with Once, only the greatest Extra of them counts
}

// InFlight returns the number of admissions that were in progress at any time from one round trip
// before moment until one round trip after it.
func InFlight(admitted []Interval, moment int64, roundTrip time.Duration) (units int64) {
	around := Interval{moment - int64(roundTrip), moment + int64(roundTrip)}
	for _, a := range admitted {
		if a.Touches(around) {
			units++
		}
	}
	return units
}

// JudgeWindows compares the number of admissions of a key in each half-open window of the
// given length with the bound of the window. The bound of a window is the sum of the
// argument most and the Extra of its occasions. JudgeWindows updates the slice found,
// which has the fullest window of each kind over all keys. A window ends with the last
// admission at the latest, so that a later occasion loosens no bound.
//
// An admission happened at a moment of its interval. A window holds the admission for certain if
// the window contains the whole interval. Other admissions are not counted, so each excess that is
// reported did happen. The result may be below the true number, by at most the admissions that were
// in progress at the ends of a window.
//
// JudgeWindows checks the windows that begin with an admission or at the end of an
// occasion, and the windows that end when an occasion begins. Any other window can be
// moved to one of these without losing an admission.
func JudgeWindows(found []Fullest, key string, admitted []Interval, occasions []Occasion, length time.Duration, most int64) {
	var begins, begun, ended []int64
	last := int64(math.MinInt64)
	for _, o := range occasions {
		begins = append(begins, o.From-int64(length), o.To)
	}
	for _, a := range admitted {
		begins, last = append(begins, a.From), max(last, a.To)
		if a.Length() < length { // a longer interval does not fit into a window
			begun, ended = append(begun, a.From), append(ended, a.To)
		}
	}
	slices.Sort(begins)
	slices.Sort(begun)
	slices.Sort(ended)
	for _, begin := range slices.Compact(begins) {
		over, _ := slices.BinarySearch(ended, begin+int64(length))
		before, _ := slices.BinarySearch(begun, begin)
		held := int64(over - before) // because each a.Length() < length, an admission that begins before the window also ends before the end of the window
		if held <= 0 {
			continue
		}
		window := Interval{begin, min(begin+int64(length)-1, last)}
		kind, extra, once := 0, int64(0), int64(0)
		for _, o := range occasions {
			switch {
			case !o.Touches(window):
				continue
			case o.Once:
				once = max(once, o.Extra)
			default:
				extra += o.Extra
			}
			kind = max(kind, o.Kind)
		}
		f := &found[kind]
		if f.Windows++; f.Windows == 1 || held-most-extra-once > f.Held-f.Most {
			f.Held, f.Most, f.Of = held, most+extra+once, key
		}
	}
}
