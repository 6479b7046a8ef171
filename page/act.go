package page

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"time"
)

const maxAct = 1 << 10 // maximum bytes of a request

// act executes the action of a button. A page of a foreign origin cannot send this request:
// browsers add the origin of a request, and do not send JSON to foreign origins without
// permission.
func (p *Page) act(w http.ResponseWriter, r *http.Request) {
	if p.actor == nil {
		http.Error(w, "this page is read-only", http.StatusNotFound)
		return
	}
	var what struct {
		Member string `json:"member"`
		Action string `json:"action"`
	}
	if !readBody(w, r, &what) {
		return
	}
	if what.Member == "" || what.Action == "" {
		http.Error(w, `send {"member": ..., "action": ...}`, http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actWithin)
	defer cancel()
	if err := p.actor.Act(ctx, what.Member, what.Action); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// readBody reads the JSON of a request into a struct. If it returns false, the request is answered.
func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "send application/json", http.StatusUnsupportedMediaType)
		return false
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(actWithin)); err != nil {
		http.Error(w, "this server does not support read deadlines", http.StatusInternalServerError)
		return false
	}
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAct))
	body.DisallowUnknownFields()
	if err := body.Decode(into); err != nil {
		http.Error(w, "send the JSON that the page sends: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}
