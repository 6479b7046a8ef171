package admin

import (
	"encoding/hex"
	"net/http"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// Suggestion is an override that would reduce the denials of a hot key. Key is nil if no member sends the text
// of the key, or if the key is not among the 100 with the most denials. rules.Suggestion describes the other fields.
type Suggestion struct {
	Limit  string    `json:"limit"`
	ID     string    `json:"id"`
	Key    *string   `json:"key,omitempty"`
	Masked bool      `json:"masked,omitempty"`
	Denied float64   `json:"denied"`
	Since  time.Time `json:"since"`
	Policy string    `json:"policy"` // numbers of the limit in force, without overrides of the key
	Rate   int64     `json:"rate"`
	Burst  int64     `json:"burst,omitempty"`
}

// Suggestions is the response to GET /v1/suggestions.
type Suggestions struct {
	Suggestions []Suggestion `json:"suggestions"`
}

// suggestions lists the suggestions for hot keys, with the texts of the keys that members know.
func (a *api) suggestions(r *request) (int, any, error) {
	top, err := a.node.TopKeys(r.Context(), maxTop)
	show := func(s rules.Suggestion) (shown Suggestion) {
		var k TopKey
		if at := slices.IndexFunc(top.Denied, func(k weir.TopKey) bool { return k.Limit == s.Limit && k.ID == s.ID }); at >= 0 {
			k = showKey(top.Denied[at])
		}
		shown = Suggestion{Limit: s.Limit, ID: hex.EncodeToString(s.ID[:]), Key: k.Key, Masked: k.Masked, Denied: s.Denied, Since: s.Since.UTC(), Rate: s.Rate, Burst: s.Burst}
		if l, _, ok := r.rules.Limit(s.Limit); ok {
			shown.Policy = rules.Describe(r.rules.InForce(l).ForTier(""))
		}
		return shown
	}
	return http.StatusOK, Suggestions{showAll(a.book.Suggestions(), show)}, err
}

// acceptSuggestion sets the override that is suggested for a key.
func (a *api) acceptSuggestion(r *request) (int, any, error) {
	var (
		limit string
		id    [16]byte
		c     rules.Control
	)
	fields := append(r.controlFields(&c), field{name: "limit", into: &limit, required: true}, field{name: "id", into: &id, required: true})
	for i := range fields {
		fields[i].required = fields[i].name != "by"
	}
	if err := r.body(fields...); err != nil {
		return 0, nil, err
	}
	all := a.book.Suggestions()
	i := slices.IndexFunc(all, func(s rules.Suggestion) bool { return s.Limit == limit && s.ID == id })
	if i < 0 {
		return 0, nil, refuse(http.StatusNotFound, "there is no suggestion for this key of %q: list the suggestions again", shorten(limit))
	}
	o := rules.Override{Control: c, Limit: limit, ID: id, Rate: all[i].Rate, Burst: all[i].Burst}
	if err := a.book.OverrideID(limit, id, o); err != nil {
		return 0, nil, err
	}
	o.At = time.Now().Truncate(time.Second)
	answer := showOverride(o)
	a.log.Info("an operator set an override", controlAttributes(&o.Control, r, "limit", limit, "id", answer.ID, "rate", o.Rate)...)
	return http.StatusOK, answer, nil
}
