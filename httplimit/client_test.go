package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir"
	_ "github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/rules"
)

var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

const (
	xForwardedFor = "X-Forwarded-For"
	attacker      = "203.0.113.66"
	victim        = "198.51.100.7"
)

func TestClientAddressFollowsTrust(t *testing.T) {
	var (
		untrusted  = RightmostUntrusted(xForwardedFor, proxies...)
		untrustedF = RightmostUntrusted("forwarded", proxies...)
		second     = FromRight(xForwardedFor, 2)
		firstF     = FromRight(forwarded, 1)
		real       = Header("x-real-ip")
	)
	for _, c := range []struct {
		about  string
		by     ClientAddress
		peer   string
		fields []string // pairs of names and values
		want   string
	}{
		{"nothing is trusted", RemoteAddr(), "192.0.2.1:80", []string{xForwardedFor, victim, forwarded, "for=" + victim, "X-Real-Ip", victim}, "192.0.2.1"},
		{"the zero value is RemoteAddr", ClientAddress{}, "192.0.2.1:80", []string{xForwardedFor, victim}, "192.0.2.1"},
		{"IPv6", RemoteAddr(), "[2001:db8::1]:80", nil, "2001:db8::1"},
		{"IPv4 within IPv6", RemoteAddr(), "[::ffff:192.0.2.1]:80", nil, "192.0.2.1"},
		{"a zone", RemoteAddr(), "[fe80::1%eth0]:80", nil, "fe80::1"},
		{"a Unix socket has no address", RemoteAddr(), "@", nil, ""},

		{"through one proxy", untrusted, "10.0.0.1:80", []string{xForwardedFor, "192.0.2.1"}, "192.0.2.1"},
		{"through three", untrusted, "10.0.0.1:80", []string{xForwardedFor, "192.0.2.1, 10.0.0.3, 10.0.0.2"}, "192.0.2.1"},
		{"in many lines", untrusted, "10.0.0.1:80", []string{xForwardedFor, victim, xForwardedFor, "192.0.2.1", xForwardedFor, "10.0.0.2"}, "192.0.2.1"},
		{"a client that is not a proxy", untrusted, "192.0.2.1:80", []string{xForwardedFor, victim}, "192.0.2.1"},
		{"no field", untrusted, "10.0.0.1:80", nil, "10.0.0.1"},
		{"all are trusted: the first", untrusted, "10.0.0.1:80", []string{xForwardedFor, "10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"with ports", untrusted, "10.0.0.1:80", []string{xForwardedFor, "192.0.2.1:4000, [fd00::2]:80"}, "192.0.2.1"},
		{"in brackets", untrusted, "10.0.0.1:80", []string{xForwardedFor, "[2001:db8::1]"}, "2001:db8::1"},
		{"a proxy's IPv4 address within IPv6", untrusted, "[::ffff:10.0.0.1]:80", []string{xForwardedFor, "192.0.2.1, ::ffff:10.0.0.2"}, "192.0.2.1"},
		{"a garbled entry", untrusted, "10.0.0.1:80", []string{xForwardedFor, victim + ", unknown"}, "10.0.0.1"},
		{"garbled behind a proxy: the peer", untrusted, "10.0.0.1:80", []string{xForwardedFor, victim + ", x, 10.0.0.2"}, "10.0.0.1"},
		{"empty: the peer", untrusted, "10.0.0.1:80", []string{xForwardedFor, victim + ", "}, "10.0.0.1"},
		{"an empty line: the peer", untrusted, "10.0.0.1:80", []string{xForwardedFor, victim, xForwardedFor, ""}, "10.0.0.1"},
		{"a zone in a list", untrusted, "10.0.0.1:80", []string{xForwardedFor, "fe80::1%1"}, "fe80::1"},
		{"a zone in brackets", untrusted, "10.0.0.1:80", []string{xForwardedFor, "[fe80::1%1]"}, "fe80::1"},
		{"an IPv4 address in brackets", untrusted, "10.0.0.1:80", []string{xForwardedFor, "[192.0.2.1]"}, "10.0.0.1"},
		{"quotes hold no list together", FromRight(xForwardedFor, 3), "10.0.0.1:80", []string{xForwardedFor, victim + `, "a, b", 192.0.2.1`}, "10.0.0.1"},
		{"quotes that do not end", firstF, "10.0.0.1:80", []string{forwarded, `for="192.0.2.1`}, "10.0.0.1"},
		{"more behind quotes", firstF, "10.0.0.1:80", []string{forwarded, `for="192.0.2.1"x;by=a`}, "10.0.0.1"},
		{"the other field is not looked at", untrusted, "10.0.0.1:80", []string{forwarded, "for=" + victim}, "10.0.0.1"},
		{"a network of IPv4 within IPv6", RightmostUntrusted(xForwardedFor, netip.MustParsePrefix("::ffff:10.0.0.0/104")), "10.0.0.1:80", []string{xForwardedFor, "192.0.2.1"}, "192.0.2.1"},

		{"Forwarded", untrustedF, "10.0.0.1:80", []string{forwarded, `for=192.0.2.1;proto=https;by=203.0.113.43, for="[fd00::2]:80"`}, "192.0.2.1"},
		{"Forwarded, IPv6", untrustedF, "10.0.0.1:80", []string{forwarded, `Proto=http; For="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::17"},
		{"Forwarded, a comma and a semicolon within quotes", untrustedF, "10.0.0.1:80", []string{forwarded, `for=` + victim + `, by="a,b;for=198.51.100.7";for=192.0.2.1`}, "192.0.2.1"},
		{"Forwarded, a comma within quotes at the end", untrustedF, "10.0.0.1:80", []string{forwarded, `for=` + victim + `, for=192.0.2.1;by="a,b"`}, "192.0.2.1"},
		{"Forwarded, quotes that do not end, before", untrustedF, "10.0.0.1:80", []string{forwarded, `for="` + victim + `, for=192.0.2.1`}, "192.0.2.1"},
		{"Forwarded, two fors", untrustedF, "10.0.0.1:80", []string{forwarded, `for=192.0.2.1;for=` + victim}, "10.0.0.1"},
		{"Forwarded, obfuscated", untrustedF, "10.0.0.1:80", []string{forwarded, `for=` + victim + `, for=_hidden`}, "10.0.0.1"},
		{"Forwarded, unknown", untrustedF, "10.0.0.1:80", []string{forwarded, `for=` + victim + `, for=unknown`}, "10.0.0.1"},
		{"Forwarded, no for", untrustedF, "10.0.0.1:80", []string{forwarded, `for=` + victim + `, by=192.0.2.1`}, "10.0.0.1"},
		{"Forwarded, an escape", untrustedF, "10.0.0.1:80", []string{forwarded, `for=` + victim + `, for="192.0.2.\1"`}, "10.0.0.1"},
		{"Forwarded, an escape that hides an end of quotes", untrustedF, "10.0.0.1:80", []string{forwarded, `by="\";for=` + victim + `;a=""`}, "10.0.0.1"},
		{"Forwarded, from the right", firstF, "10.0.0.1:80", []string{forwarded, `for=` + victim, forwarded, `for="192.0.2.1"`}, "192.0.2.1"},

		{"the second from the right", second, "10.0.0.1:80", []string{xForwardedFor, victim + ", 192.0.2.1, 172.16.0.1"}, "192.0.2.1"},
		{"the second from the right, in lines", second, "10.0.0.1:80", []string{xForwardedFor, victim + ", 192.0.2.1", xForwardedFor, "172.16.0.1"}, "192.0.2.1"},
		{"fewer than there are proxies: the peer", second, "10.0.0.1:80", []string{xForwardedFor, victim}, "10.0.0.1"},
		{"an empty one counts", second, "10.0.0.1:80", []string{xForwardedFor, victim + ", , 172.16.0.1"}, "10.0.0.1"},
		{"a garbled one is not passed over", second, "10.0.0.1:80", []string{xForwardedFor, victim + ", 1.2.3, 172.16.0.1"}, "10.0.0.1"},

		{"one header", real, "10.0.0.1:80", []string{"X-Real-Ip", " 192.0.2.1 "}, "192.0.2.1"},
		{"one header, twice", real, "10.0.0.1:80", []string{"X-Real-Ip", victim, "X-Real-Ip", "192.0.2.1"}, "10.0.0.1"},
		{"one header, a list", real, "10.0.0.1:80", []string{"X-Real-Ip", victim + ", 192.0.2.1"}, "10.0.0.1"},
		{"one header, garbled", real, "10.0.0.1:80", []string{"X-Real-Ip", "192.0.2.1.3"}, "10.0.0.1"},
		{"one header, not there", real, "10.0.0.1:80", nil, "10.0.0.1"},
		{"one header, over a Unix socket", real, "@", []string{"X-Real-Ip", "192.0.2.1"}, "192.0.2.1"},
	} {
		require.NoError(t, c.by.validate(), c.about)
		r := get("/", "", c.fields...)
		r.RemoteAddr = c.peer
		got := c.by.FromRequest(r)
		if c.want == "" {
			require.False(t, got.IsValid(), c.about)
			continue
		}
		require.Equal(t, c.want, got.String(), c.about)
	}
}

func TestNewRefusesInvalidClientAddress(t *testing.T) {
	n, book := newLimiter(t, threeLimits, Options{}, weir.Config{}).parts()
	for _, o := range []Options{
		{Client: RightmostUntrusted(xForwardedFor)},
		{Client: RightmostUntrusted("", proxies...)},
		{Client: RightmostUntrusted(xForwardedFor, netip.Prefix{})},
		{Client: FromRight(xForwardedFor, 0)},
		{Client: FromRight("", 1)},
		{Client: Header("")},
		{MaxWaiting: -1},
	} {
		_, err := New(n, book, o)
		require.ErrorIs(t, err, weir.ErrInvalid)
	}
	_, err := New(nil, book, Options{})
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = New(n, nil, Options{})
	require.ErrorIs(t, err, weir.ErrInvalid)
}

func (m *Middleware) parts() (*weir.Node, *rules.Book) { return m.node, m.book }

// trustRules are ClientAddresses with the proxies for them. Like a real proxy, each proxy forwards a
// request to the next proxy, and the last proxy forwards it to the gateway.
var trustRules = []struct {
	name  string
	by    ClientAddress
	depth int // number of proxies
	field string
	write func(h http.Header, from string)
}{
	{"RemoteAddr", RemoteAddr(), 0, xForwardedFor, nil},
	{"RightmostUntrusted, not through a proxy", RightmostUntrusted(xForwardedFor, proxies...), 0, xForwardedFor, nil},
	{"RightmostUntrusted", RightmostUntrusted(xForwardedFor, proxies...), 3, xForwardedFor, appendTo},
	{"RightmostUntrusted, a line each", RightmostUntrusted(xForwardedFor, proxies...), 2, xForwardedFor, addTo},
	{"RightmostUntrusted of Forwarded", RightmostUntrusted(forwarded, proxies...), 2, forwarded, appendForwarded},
	{"FromRight 1", FromRight(xForwardedFor, 1), 1, xForwardedFor, appendTo},
	{"FromRight 3", FromRight(xForwardedFor, 3), 3, xForwardedFor, appendTo},
	{"FromRight 2, a line each", FromRight(xForwardedFor, 2), 2, xForwardedFor, addTo},
	{"FromRight 2 of Forwarded", FromRight(forwarded, 2), 2, forwarded, appendForwarded},
	{"Header", Header("X-Real-IP"), 1, "X-Real-Ip", func(h http.Header, from string) { h.Set("X-Real-IP", from) }},
}

func appendTo(h http.Header, from string) {
	h.Set(xForwardedFor, strings.TrimPrefix(strings.Join(append(h[xForwardedFor], from), ", "), ", "))
}

func addTo(h http.Header, from string) { h.Add(xForwardedFor, from) }

func appendForwarded(h http.Header, from string) {
	node := "for=" + from
	if strings.Contains(from, ":") {
		node = fmt.Sprintf(`proto=https;for="[%s]:4711"`, from)
	}
	h.Set(forwarded, strings.TrimPrefix(strings.Join(append(h[forwarded], node), ", "), ", "))
}

// requestThrough returns a request as the gateway receives it.
func requestThrough(rule int, from string, spoofed http.Header) *http.Request {
	t := trustRules[rule]
	r := get("/", "")
	r.Header = spoofed.Clone()
	r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(from), 4000).String()
	for i := range t.depth {
		t.write(r.Header, from)
		from = fmt.Sprintf("10.0.0.%d", i+1)
		r.RemoteAddr = from + ":4000"
	}
	return r
}

// spoofedEntry draws an entry of a header field of an attacker.
var spoofedEntry = rapid.OneOf(
	rapid.SampledFrom([]string{
		victim, "10.0.0.1", "10.0.0.2", "fd00::1", "unknown", "_x", "", " ", `"`, `\`, `\"`, ";", "=", "for=" + victim,
		`for="` + victim + `"`, `for="`, `for="[fd00::1]`, victim + ":80", "[" + victim + "]", "::ffff:" + victim, "by=10.0.0.1;for=" + victim, "%eth0",
	}),
	rapid.String(),
)

// checkSpoofedFields requires that a request of an attacker has the address of the attacker, whatever
// fields it has. So the attacker can neither evade its limit nor use up the limit of another client.
func checkSpoofedFields(t *rapid.T) {
	rule := rapid.IntRange(0, len(trustRules)-1).Draw(t, "rule")
	from := rapid.SampledFrom([]string{attacker, "2001:db8::66"}).Draw(t, "from")
	spoofed := make(http.Header)
	for _, field := range []string{xForwardedFor, forwarded, "X-Real-Ip"} {
		for range rapid.IntRange(0, 3).Draw(t, "lines") {
			spoofed.Add(field, strings.Join(rapid.SliceOfN(spoofedEntry, 0, 4).Draw(t, "entries"), rapid.SampledFrom([]string{",", ", ", ";"}).Draw(t, "by")))
		}
	}
	require.Equal(t, from, trustRules[rule].by.FromRequest(requestThrough(rule, from, spoofed)).String(), trustRules[rule].name)
}

func TestSpoofedFieldsDoNotChangeClientAddress(t *testing.T) { rapid.Check(t, checkSpoofedFields) }

func FuzzSpoofedFieldsDoNotChangeClientAddress(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(checkSpoofedFields))
}

func TestReadingAddressesDoesNotAllocate(t *testing.T) {
	by := RightmostUntrusted(xForwardedFor, proxies...)
	r := get("/", "10.0.0.1", xForwardedFor, "192.0.2.1, 10.0.0.3", xForwardedFor, "10.0.0.2")
	require.Zero(t, testing.AllocsPerRun(100, func() { by.FromRequest(r) }))
}
