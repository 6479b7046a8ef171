package httplimit

import (
	"net/http"

	"github.com/weir-go/weir/internal/adminapi"
)

const adminTop = 20 // keys, unless told

// top tells which keys are asked for most, and denied most, in the whole cluster.
func (a *admin) top(r *adminRequest) (int, any, error) {
	most := int64(adminTop)
	if err := r.parameters(adminField{name: "n", into: &most}); err != nil {
		return 0, nil, err
	}
	t, err := a.node.TopKeys(r.Context(), int(min(max(most, -1), 1<<20)))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, adminapi.TopOf(t), nil
}
