package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// maxBody bounds the bytes of a request's body. The middleware reads up to this number of
// bytes before the handler does, for the estimate.
const maxBody = 1 << 20

// model is the service behind the gateway.
type model struct {
	url       *url.URL
	key       string            // replaces the clients' API keys
	transport http.RoundTripper // http.DefaultTransport if nil
}

// gateway forwards requests with known API keys to the model, within the rules.
func gateway(node *weir.Node, book *rules.Book, keys []string, to model) (http.Handler, error) {
	limit, err := httplimit.New(node, book, httplimit.Options{APIKey: httplimit.BearerToken, MaxBody: maxBody})
	if err != nil {
		return nil, err
	}
	limited := limit.Handler(reportUsage(&httputil.ReverseProxy{
		Transport: to.transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to.url)
			r.Out.Header.Set("Authorization", "Bearer "+to.key)
			r.Out.Header.Set("Accept-Encoding", "identity") // the middleware reads the usage in the response
		},
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		// Requests with unknown keys end here, so that a client gets no new counts for
		// invented keys.
		if !slices.Contains(keys, httplimit.BearerToken(r)) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "unknown API key", http.StatusUnauthorized)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		limited.ServeHTTP(w, r)
	})
	return mux, nil
}

// reportUsage sets include_usage in requests for a stream. If a response has no usage, the
// estimate stays spent.
func reportUsage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request == nil {
			http.Error(w, "the body is not a JSON object, or has more than 1 MiB", http.StatusBadRequest)
			return
		}
		if string(request["stream"]) == "true" {
			request["stream_options"] = json.RawMessage(`{"include_usage":true}`)
		}
		body, err := json.Marshal(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}
