package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Bounds of the size of events in a large cluster.
const (
	membersShown = 50 // maximum number of members in a snapshot
	namesShown   = 20 // maximum number of names in a list
)

// gatherEach is about the number of members that a Gatherer asks in a second, on average, in a large cluster.
// The interval is rounded to whole seconds, so that it stays a second up to about 150 members.
const gatherEach = 100

// roster is the number of members, and how many of them are in each state.
type roster struct {
	All      int `json:"all"`
	Serving  int `json:"serving"`
	Changing int `json:"changing"`
	Missing  int `json:"missing"`
	// Rest is the part of all keys that is owned by members that are not shown.
	Rest float64 `json:"rest"`
}

// foundMembers is the result of a search.
type foundMembers struct {
	Found   int           `json:"found"`
	Members []shownMember `json:"members"`
}

// sortByNeed sorts the members of a large cluster so that the first are the members that a person looks for:
// missing, then changing, then the node itself. A small cluster keeps its order, so that rows stay in place.
func sortByNeed(members []shownMember) {
	if len(members) <= membersShown {
		return
	}
	need := func(m shownMember) int {
		switch {
		case m.Health == Missing:
			return 0
		case m.Health == Changing:
			return 1
		case m.Self:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(members, func(a, b shownMember) int { return cmp.Compare(need(a), need(b)) })
}

// countMembers returns the roster of sorted members.
func countMembers(members []shownMember) roster {
	r := roster{All: len(members)}
	for i, m := range members {
		switch m.Health {
		case Missing:
			r.Missing++
		case Changing:
			r.Changing++
		default:
			r.Serving++
		}
		if i >= membersShown {
			r.Rest += m.Share
		}
	}
	return r
}

// shortenList returns the first names of a long list, and how many more it has. The result is not nil.
func shortenList(names []string) []string {
	if len(names) <= namesShown {
		return append([]string{}, names...)
	}
	return append(slices.Clone(names[:namesShown]), fmt.Sprintf("%d more", len(names)-namesShown))
}

// gatherPause returns the minimum time until all members are asked again, at the next snapshot.
func gatherPause(members int) time.Duration {
	if members <= gatherEach {
		return 0
	}
	return time.Duration(members)*time.Second/gatherEach - snapshotEvery/2
}

// members serves the members whose ID, name, address, region or state contains the text in the
// request. It ignores the case of letters. It serves at most membersShown members, and the number of
// all that it has found.
func (p *Page) members(w http.ResponseWriter, r *http.Request) {
	if isForeign(r) {
		http.Error(w, "the request comes from a page of another origin", http.StatusForbidden)
		return
	}
	text := strings.ToLower(r.URL.Query().Get("find"))
	if len(text) > maxKey {
		http.Error(w, "the text to find has 1,024 bytes at most", http.StatusBadRequest)
		return
	}
	p.hub.mu.Lock()
	all := p.hub.members
	p.hub.mu.Unlock()
	found := foundMembers{Members: []shownMember{}}
	for _, m := range all {
		if !strings.Contains(strings.ToLower(strings.Join([]string{m.ID, m.Name, m.Addr, m.Region, m.State}, "\n")), text) {
			continue
		}
		if found.Found++; found.Found <= membersShown {
			found.Members = append(found.Members, m)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found) // the viewer may have left
}

// isForeign reports whether a page of a foreign origin sent the request.
func isForeign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}
