package main

import (
	"net/http"
	"net/http/httputil"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

// limitFields are the header fields about the limits of this gateway.
var limitFields = []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Soft", "X-RateLimit-Banned"}

// gateway forwards the requests that the rules allow.
func gateway(node *weir.Node, book *rules.Book, callers callers, o options) (http.Handler, error) {
	client := httplimit.RemoteAddr()
	if len(o.proxies) > 0 {
		client = httplimit.RightmostUntrusted("X-Forwarded-For", o.proxies...)
	}
	limit, err := httplimit.New(node, book, httplimit.Options{
		Client: client, APIKey: callers.key, Tier: callers.tier,
		RefuseAmbiguousPaths: true, // the service may read such a path in another way than the rules
	})
	if err != nil {
		return nil, err
	}
	return limit.Handler(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(o.to)
			r.Out.Host = r.In.Host
			if len(o.proxies) > 0 {
				r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			}
			r.SetXForwarded()
		},
		// The service may send fields about its own limits. A client would read two lists
		// as one.
		ModifyResponse: func(r *http.Response) error {
			for _, name := range limitFields {
				r.Header.Del(name)
			}
			return nil
		},
	}), nil
}
