package main

import (
	"slices"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// wasDown reports whether an incarnation was frozen or had ended at a moment of a span.
func (f *fleet) wasDown(inc *incarnation, s span) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return inc != nil && near(inc.down, s)
}

// incarnationOf returns the incarnation with a member's name, or nil if there is none.
func (f *fleet) incarnationOf(member string) *incarnation {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.IndexFunc(f.all, func(inc *incarnation) bool { return inc.report.Name == member }); i >= 0 {
		return f.all[i]
	}
	return nil
}

// healed is the time after a heal until all admissions are in the count of the owner.
const healed = 200 * time.Millisecond

// untilHealed returns s, extended by healed.
func untilHealed(s span) span {
	return lab.Between(s.From, min(s.To, never-int64(healed))+int64(healed))
}

// occasions returns the times at which steps affect windows.
func (f *fleet) occasions() *occasions {
	f.mu.Lock()
	defer f.mu.Unlock()
	var o occasions
	for _, h := range f.happened {
		s := lab.Between(h.from, h.seenBy)
		if h.kind == thaw {
			s = untilHealed(s)
		}
		s.To = min(s.To, never-int64(f.aftermath)) + int64(f.aftermath)
		o[h.kind.guarantee()] = append(o[h.kind.guarantee()], s)
	}
	return &o
}
