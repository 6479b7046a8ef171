package rules

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Mode is the enforcement of a rule: the number of keys in a million for which the rule is a shadow, or
// Off. EnforcePart returns the modes between Enforce and Shadow.
type Mode int32

const (
	Enforce Mode = 0         // the limits deny
	Shadow  Mode = 1_000_000 // decisions are counted and reported, and nothing is denied, delayed or marked
	Off     Mode = -1        // no request meets the rule
)

// modeNames are the texts of namedModes, which are the modes that are not percentages.
var (
	modeNames  = []string{"enforce", "shadow", "off"}
	namedModes = []Mode{Enforce, Shadow, Off}
)

// EnforcePart returns the Mode in which a rule is enforced for a part of the keys, from 0.000001 to 1,
// and a shadow for the other keys. The ID of the key selects the part. So the part is the same on all
// nodes and after a restart, and a smaller part is contained in a larger one.
func EnforcePart(part float64) Mode { return Shadow - Mode(math.Round(part*float64(Shadow))) }

// isPart reports whether the rule is enforced for a part of the keys.
func (m Mode) isPart() bool { return Enforce < m && m < Shadow }

// forID returns the mode for an ID if m is enforced in part: Enforce or Shadow.
func (m Mode) forID(id [16]byte) Mode {
	// The ring and the tables of a node use other bits of the ID, so they do not depend on the part.
	if uint64(binary.BigEndian.Uint32(id[8:]))*uint64(Shadow)>>32 < uint64(Shadow-m) {
		return Enforce
	}
	return Shadow
}

// String returns the mode as text: enforce, shadow, off, or a percentage such as 10%.
func (m Mode) String() string {
	if at := slices.Index(namedModes, m); at >= 0 {
		return modeNames[at]
	}
	return strconv.FormatFloat(float64(Shadow-m)/float64(Shadow/100), 'f', -1, 64) + "%"
}

// MarshalText returns the text of String. It never fails.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a text of String. The error names the valid texts.
func (m *Mode) UnmarshalText(text []byte) error {
	s := string(text)
	if at := slices.Index(modeNames, s); at >= 0 {
		*m = namedModes[at]
		return nil
	}
	digits, isPercent := strings.CutSuffix(s, "%")
	percent, err := strconv.ParseFloat(digits, 64)
	if !isPercent || err != nil {
		return fmt.Errorf("mode is %.40q: use enforce, shadow, off, or a percentage of the keys, like 10%%", s)
	}
	part := EnforcePart(percent / 100)
	if !(0 < percent && percent <= 100) || part == Shadow {
		return fmt.Errorf("mode is %.40q: use 0.0001%% to 100%% of the keys, or shadow for none", s)
	}
	*m = part
	return nil
}
