package main

import (
	"fmt"
	"io"
)

// allowed is how much the judge lets the accounts of the witness be off, and how much
// they were, in units: it says how sharp the judge is.
type allowed struct {
	Spent                   int64
	Lost, Regained, Unheard int64 // at most, as in Ending; Regained with what is Stale
	Gone, Back, Beside      int64 // of these, what was so
}

func (a *allowed) add(o allowed) {
	a.Spent += o.Spent
	a.Lost += o.Lost
	a.Regained += o.Regained
	a.Unheard += o.Unheard
	a.Gone += o.Gone
	a.Back += o.Back
	a.Beside += o.Beside
}

// allowed is that of a run.
func (j *Journal) allowed() (sum allowed) {
	for _, e := range j.Ends {
		sum.add(allowed{
			Spent: e.Total, Lost: e.Lost, Regained: e.Regained + e.Stale, Unheard: e.Unheard,
			Gone: max(0, e.Spent-e.Used), Back: max(0, e.Used-e.Spent), Beside: max(0, e.Total-e.Granted),
		})
	}
	return sum
}

func (a *allowed) tell(w io.Writer) {
	if a.Spent == 0 {
		return
	}
	part := func(units int64) float64 { return 100 * float64(units) / float64(a.Spent) }
	fmt.Fprintf(w, "Of the %d units that were spent of the witness\n", a.Spent)
	fmt.Fprintf(w, "%6.2f %% may be gone with crashes, %.2f %% were\n", part(a.Lost), part(a.Gone))
	fmt.Fprintf(w, "%6.2f %% may count once more, as crashes took the word that they were given back or two nodes took them off after a reset, %.2f %% did\n", part(a.Regained), part(a.Back))
	fmt.Fprintf(w, "%6.2f %% may be spent though no caller was granted them, %.2f %% were\n", part(a.Unheard), part(a.Beside))
}
