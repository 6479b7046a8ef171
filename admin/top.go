package admin

import "net/http"

const (
	defaultTop = 20  // default number of keys
	maxTop     = 100 // maximum number of keys
)

// totals returns the sums of the decisions of all members.
func (a *api) totals(r *request) (int, any, error) {
	t, err := a.node.Totals(r.Context())
	return http.StatusOK, showTotals(t), err
}

// top returns the keys with the most checks, denials and held units in the cluster.
func (a *api) top(r *request) (int, any, error) {
	most := int64(defaultTop)
	if err := r.parameters(field{name: "n", into: &most, least: 1, most: maxTop}); err != nil {
		return 0, nil, err
	}
	t, err := a.node.TopKeys(r.Context(), int(most))
	return http.StatusOK, NewTop(t), err
}
