package admin

import (
	"net/http"

	"github.com/weir-go/weir"
)

// Readiness returns a handler for readiness probes, which answers 200 while Node.Ready is true, and 503
// otherwise. A new node is ready once it has authority over the counts that it owns, or need not wait for that
// authority. If no address of Config.Join answers, the wait takes up to Config.JoinTimeout. After Leave or
// Close, the node is not ready. A rolling deploy that waits for 200 resets no count.
//
// The handler accepts every method and path, and reads nothing. The handler may be open to all clients, because
// the responses reveal no key, member or count.
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
