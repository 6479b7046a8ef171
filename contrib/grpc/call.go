package grpclimit

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weir-go/weir/rules"
)

// request returns the rules.Request of a call.
func (l *Limits) request(ctx context.Context, method string) *rules.Request {
	md, _ := metadata.FromIncomingContext(ctx)
	r := &rules.Request{Method: http.MethodPost, Path: method, Header: headerOf(md), Length: -1}
	if authority := md.Get(":authority"); len(authority) == 1 {
		r.Host = authority[0]
	}
	from := http.Request{Header: r.Header}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from.RemoteAddr = p.Addr.String()
		if p.Addr.Network() == "unix" { // for ClientAddress.TrustUnix
			from = *from.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, p.Addr))
		}
	}
	r.Client = l.o.Client.FromRequest(&from)
	for _, who := range []struct {
		is   *string
		from func(context.Context) string
	}{{&r.User, l.o.User}, {&r.APIKey, l.o.APIKey}, {&r.Tier, l.o.Tier}} {
		if who.from != nil {
			*who.is = who.from(ctx)
		}
	}
	r.Critical = l.o.Critical != nil && l.o.Critical(ctx)
	if l.o.Claim != nil {
		r.Claims = claims(func(name string) string { return l.o.Claim(ctx, name) })
	}
	return r
}

// claims implements rules.Claims.
type claims func(name string) string

func (c claims) Claim(name string) string { return c(name) }

// headerOf returns metadata with the field names of http.Header, without pseudo-header
// fields. Binary values are left out too, because they cannot be compared with text.
func headerOf(md metadata.MD) http.Header {
	h := make(http.Header, len(md))
	for name, values := range md {
		if !strings.HasPrefix(name, ":") && !strings.HasSuffix(name, "-bin") {
			h[http.CanonicalHeaderKey(name)] = values
		}
	}
	return h
}

// MetadataValue returns a function for Options that reads the metadata of a call. The
// function returns "" if the name is missing or has several values. The value is only as
// trustworthy as its source: use it for an API key that is checked later, or for a user
// that your own proxy looks up and writes over the value of the client.
func MetadataValue(name string) func(context.Context) string {
	name = strings.ToLower(name)
	return func(ctx context.Context) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) == 1 {
			return values[0]
		}
		return ""
	}
}

// BearerToken is a function for Options.APIKey. It returns the token in the authorization
// metadata (RFC 6750), or "" if there is no token.
func BearerToken(ctx context.Context) string {
	scheme, token, _ := strings.Cut(authorization(ctx), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(token, " ")
}

var authorization = MetadataValue("authorization")
