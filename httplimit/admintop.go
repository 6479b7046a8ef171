package httplimit

import (
	"encoding/hex"
	"net/http"

	"github.com/weir-go/weir"
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
	return http.StatusOK, adminapi.Top{
		Asked: topOf(t.Asked), Denied: topOf(t.Denied), Held: heldOf(t.Held),
		Missing: append([]string{}, t.Missing...), Silent: append([]string{}, t.Silent...),
	}, nil
}

func topOf(keys []weir.TopKey) []adminapi.TopKey {
	answer := make([]adminapi.TopKey, len(keys))
	for i, k := range keys {
		answer[i] = adminapi.TopKey{Limit: k.Limit, ID: hex.EncodeToString(k.ID[:]), Masked: k.Masked, Asks: k.Asks, AsksOver: k.AsksOver, Denials: k.Denials, DenialsOver: k.DenialsOver}
		if k.Known {
			answer[i].Key = &k.Key
		}
	}
	return answer
}

func heldOf(keys []weir.HeldKey) []adminapi.TopKey {
	top := make([]weir.TopKey, len(keys))
	for i, k := range keys {
		top[i] = k.TopKey
	}
	answer := topOf(top)
	for i, k := range keys {
		answer[i].Held, answer[i].HeldMost = k.Held, k.Most
	}
	return answer
}
