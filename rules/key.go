package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/httpread"
)

// part is the source of a part of a key.
type part struct {
	from    source
	name    string // canonical name of a header field, or the name of a parameter, cookie, claim or path wildcard
	segment int    // index of the segment in the pattern; only for fromPath, where -1 stands for the whole path
}

type source uint8

const (
	fromClient source = iota
	fromUser
	fromAPIKey
	fromNothing // a single count for all requests
	fromHost
	fromPath
	fromHeader
	fromQuery
	fromCookie
	fromClaim
)

// keyNames are the names of the sources in a file. After a name that ends with a colon, the
// name of the field, parameter, cookie or claim follows.
var keyNames = []string{"ip", "user", "api_key", "global", "host", "path", headerPrefix, "query:", "cookie:", "claim:"}

// knownKeys are the names of sources, for errors.
var knownKeys = []string{"ip", "user", "api_key", "global", "host", "path", "path:NAME", "header:X", "query:X", "cookie:X", "claim:X"}

// defaultIPv6 is the number of significant bits of an IPv6 address, unless the file has a
// different number.
const defaultIPv6 = 64

// lacking determines the key of a request that lacks a part of the key of a rule.
type lacking uint8

const (
	byClient lacking = iota // the address of the client replaces the part
	notMet                  // the rule does not apply
	together                // all such requests have the same count
	unnamed                 // the address is the key, as if the rule were by address; only for Single
)

// lackingNames are the names of byClient, notMet and together in a file.
var lackingNames = []string{"ip", "skip", "shared"}

// maxPartBytes is the maximum length of a part of a key. A longer part is hashed. With
// maxParts parts a key is below the maximum of a node, 1 KiB.
const (
	maxParts     = 4
	maxPartBytes = 200
)

// key determines the keys of a rule.
//
// Parts are joined by |, and the characters | and \ within a part are written \| and \\. A part
// that the request lacks begins with \-, an ambiguous part is \?, and \# precedes the SHA-256 of a part that is too long.
// So two different requests never share a key because of the way in which their parts are
// written. If an address is the key of a request without a user, \= precedes the name of a user
// that reads as an address.
type key struct {
	parts   []part
	lacking lacking
	ipv6    int // number of significant bits of an IPv6 address

	chosen     bool    // a part is from the query, a cookie or the path, and may be ambiguous
	pattern    pattern // path pattern of the rule
	ignoreCase bool
}

func (k *key) isGlobal() bool { return len(k.parts) == 1 && k.parts[0].from == fromNothing }

// secret reports whether a part of the key is a credential: an API key, a cookie, or a header field or a
// parameter with the name of a credential.
func (k *key) secret() bool {
	return slices.ContainsFunc(k.parts, func(p part) bool {
		return p.from == fromAPIKey || p.from == fromCookie || (p.from == fromHeader || p.from == fromQuery) && httpread.IsSecretName(p.name)
	})
}

func (k *key) append(b []byte, r *Request) (_ []byte, ok bool) {
	begun := len(b)
	for i, p := range k.parts {
		if i > 0 {
			b = append(b, '|')
		}
		text, ambiguous := k.value(r, p)
		switch {
		case p.from == fromNothing:
		case p.from == fromClient:
			b = k.appendClient(b, r.Client)
		case ambiguous:
			b = append(b, `\?`...)
		case k.lacking == unnamed && text == "":
			b = k.appendClient(b, r.Client)
		case k.lacking == unnamed && isAddress(text):
			b = append(append(b, `\=`...), text...)
		case text != "":
			b = appendPart(b, text)
		case k.lacking == notMet:
			return b[:begun], false
		case k.lacking == together:
			b = append(b, `\-`...)
		default:
			b = k.appendClient(append(b, `\-`...), r.Client)
		}
	}
	return b, true
}

// value returns the value of a part other than the address.
func (k *key) value(r *Request, p part) (text string, ambiguous bool) {
	switch p.from {
	case fromUser:
		return r.User, false
	case fromAPIKey:
		return r.APIKey, false
	case fromHeader:
		return strings.Join(r.lines(p.name), ","), false // several lines are a single list; Join does not copy a single line
	case fromHost:
		return hostOf(r.Host), false
	case fromPath:
		return k.pathValue(r, p.segment)
	case fromQuery:
		return r.queryValue(p.name)
	case fromCookie:
		return r.cookieValue(p.name)
	case fromClaim:
		if r.Claims != nil {
			return r.Claims.Claim(p.name), false
		}
	}
	return "", false
}

// appendClient appends the significant part of an address. An IPv4 address within IPv6 is
// written as IPv4. Of an IPv6 address only the network is written, because the client can choose
// the remaining bits.
func (k *key) appendClient(b []byte, a netip.Addr) []byte {
	a = a.Unmap()
	switch {
	case !a.IsValid():
		return append(b, `\-`...)
	case a.Is4():
		return a.AppendTo(b)
	}
	network, err := a.Prefix(k.ipv6) // without its zone
	if err != nil {
		return append(b, `\-`...)
	}
	return network.AppendTo(b)
}

// isAddress reports whether a text reads as an address or as a network.
func isAddress(text string) bool {
	// This test rejects most names without the parser, which allocates its errors.
	if strings.Trim(text, "0123456789abcdef.:/") != "" || !strings.ContainsAny(text, ".:") {
		return false
	}
	_, err := netip.ParseAddr(text)
	if err != nil {
		_, err = netip.ParsePrefix(text)
	}
	return err == nil
}

func appendPart(b []byte, text string) []byte {
	begun := len(b)
	if len(text) <= maxPartBytes {
		left := text
		for {
			i := strings.IndexAny(left, `|\`)
			if i < 0 {
				b = append(b, left...)
				break
			}
			b = append(append(b, left[:i]...), '\\', left[i])
			left = left[i+1:]
		}
		if len(b)-begun <= maxPartBytes {
			return b
		}
	}
	sum := sha256.Sum256([]byte(text))
	return hex.AppendEncode(append(b[:begun], `\#`...), sum[:])
}

// String returns the key as it is written in a file.
func (k *key) String() string {
	texts := make([]string, len(k.parts))
	for i, p := range k.parts {
		texts[i] = p.String()
	}
	return strings.Join(texts, "|")
}

// ambiguous returns the part of the key that servers are known to read in several ways, or "".
func (k *key) ambiguous(r *Request) string {
	if !k.chosen {
		return ""
	}
	for _, p := range k.parts {
		if _, is := k.value(r, p); is {
			return p.String()
		}
	}
	return ""
}

func (p part) String() string {
	if p.from == fromPath && p.name != "" {
		return "path:" + p.name
	}
	return keyNames[p.from] + p.name
}

// partOf reads a part of a key, without the checks of its name. ok is false for an unknown text.
func partOf(text string) (p part, ok bool) {
	for from, name := range keyNames {
		if rest, found := strings.CutPrefix(text, name); found && (rest == "" || strings.HasSuffix(name, ":")) {
			return part{from: source(from), name: strings.TrimSpace(rest)}, true
		}
	}
	name, ok := strings.CutPrefix(text, "path:")
	return part{from: fromPath, name: strings.TrimSpace(name)}, ok
}

// headerPrefix is the prefix of a source that is a header field.
const headerPrefix = "header:"

// headerName returns the name in "header:X", without spaces around it.
func headerName(text string) (name string, ok bool) {
	name, ok = strings.CutPrefix(text, headerPrefix)
	return strings.TrimSpace(name), ok
}
