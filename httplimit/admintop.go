package httplimit

import (
	"encoding/hex"
	"net/http"

	"github.com/weir-go/weir"
)

const adminTop = 20 // keys, unless told

type topAnswer struct {
	Asked   []topKey `json:"asked"`
	Denied  []topKey `json:"denied"`
	Held    []topKey `json:"held"`
	Missing []string `json:"missing"`
	Silent  []string `json:"silent"`
}

type topKey struct {
	Limit       string  `json:"limit"`
	ID          string  `json:"id"`
	Key         *string `json:"key,omitempty"`
	Masked      bool    `json:"masked,omitempty"`
	Asks        uint64  `json:"asks"`
	AsksOver    uint64  `json:"asks_over"`
	Denials     uint64  `json:"denials"`
	DenialsOver uint64  `json:"denials_over"`
	Held        int64   `json:"held,omitempty"`
	HeldMost    int64   `json:"held_most,omitempty"`
}

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
	return http.StatusOK, topAnswer{
		topOf(t.Asked), topOf(t.Denied), heldOf(t.Held), append([]string{}, t.Missing...), append([]string{}, t.Silent...),
	}, nil
}

func topOf(keys []weir.TopKey) []topKey {
	answer := make([]topKey, len(keys))
	for i, k := range keys {
		answer[i] = topKey{Limit: k.Limit, ID: hex.EncodeToString(k.ID[:]), Masked: k.Masked, Asks: k.Asks, AsksOver: k.AsksOver, Denials: k.Denials, DenialsOver: k.DenialsOver}
		if k.Known {
			answer[i].Key = &k.Key
		}
	}
	return answer
}

func heldOf(keys []weir.HeldKey) []topKey {
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
