package admin

import (
	"net/http"
)

const (
	adminTop    = 20  // default number of keys
	adminMaxTop = 100 // maximum number of keys
)

// totals returns the sums of the decisions of all members.
func (a *admin) totals(r *adminRequest) (int, any, error) {
	t, err := a.node.Totals(r.Context())
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, TotalsOf(t), nil
}

// top returns the keys with the most checks, and the keys with the most denials, in the cluster.
func (a *admin) top(r *adminRequest) (int, any, error) {
	most := int64(adminTop)
	if err := r.parameters(adminField{name: "n", into: &most}); err != nil {
		return 0, nil, err
	}
	var wrong adminWrongs
	if wrong.between("n", most, 1, adminMaxTop); wrong != nil {
		return 0, nil, wrong.err()
	}
	t, err := a.node.TopKeys(r.Context(), int(most))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, TopOf(t), nil
}
