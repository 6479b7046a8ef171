package admin

import (
	"net/http"

	"github.com/weir-go/weir"
)

// Readiness answers a deploy that asks whether it may go on: 200 once the node
// holds authority over what it owns, or has none to wait for, and 503 before
// that (for Config.JoinTimeout while nobody of Config.Join answers), after Leave and
// after Close. A rolling deploy that waits for it resets no
// count. It answers any method and path, reads nothing, and may be open to all:
// it tells no key, member or count.
func Readiness(n *weir.Node) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if !n.Ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte("not ready\n"))
			return
		}
		w.Write([]byte("ready\n"))
	})
}
