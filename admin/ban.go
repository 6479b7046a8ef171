package admin

import (
	"encoding/hex"
	"net/http"
	"time"

	"github.com/weir-go/weir"
)

// Ban is a banned key. Key is nil unless a member that answered has the text of the key and may send it
// (weir.Node.TopKeys). weir.BannedKey describes when Since is known, and the other fields.
type Ban struct {
	Limit  string     `json:"limit"`
	ID     string     `json:"id"`
	Key    *string    `json:"key,omitempty"`
	Masked bool       `json:"masked,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	Until  time.Time  `json:"until"`
}

// Bans is the response to GET /v1/bans: the bans of all members. Those that end last come first.
type Bans struct {
	Bans    []Ban    `json:"bans"`
	Missing []string `json:"missing"`
}

// bans lists the bans of all members.
func (a *api) bans(r *request) (int, any, error) {
	all, err := a.node.Bans(r.Context())
	return http.StatusOK, Bans{showAll(all.Bans, showBan), append([]string{}, all.Missing...)}, err
}

func showBan(b weir.BannedKey) Ban {
	shown := Ban{Limit: b.Limit, ID: hex.EncodeToString(b.ID[:]), Masked: b.Masked, Since: truncateTime(b.Since), Until: b.Until.UTC().Truncate(time.Second)}
	if b.Known {
		shown.Key = &b.Key
	}
	return shown
}

// deleteBan ends the ban of a key, and deletes the count of the key. The request has the text of the key, or
// its id from the list of bans.
func (a *api) deleteBan(r *request) (int, any, error) {
	limit, key, raw, err := r.readKey("ban")
	if err != nil {
		return 0, nil, err
	}
	l, err := findLimit(r.rules, limit)
	if err != nil {
		return 0, nil, err
	}
	limiter := r.rules.Limiter(l, "", key)
	if limiter.Limit().Ban == (weir.Ban{}) {
		return 0, nil, refuse(http.StatusBadRequest, "limit %q has no ban: its rule has none, or it is in_flight", limit)
	}
	notReached, err := reset(r.Context(), limiter, raw)
	if err != nil {
		return 0, nil, err
	}
	a.log.Info("an operator released a ban", "limit", limit, "id", hex.EncodeToString(raw[:]), "not_reached", notReached, "client", r.by, "addr", r.RemoteAddr)
	return showReset(notReached)
}
