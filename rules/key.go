package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/httpread"
)

// part is what one part of a key is taken from.
type part struct {
	from   source
	header string // canonical
}

type source uint8

const (
	fromClient source = iota
	fromUser
	fromAPIKey
	fromNothing // one count for all
	fromHeader
)

// keyNames are the sources in the words of a file.
var keyNames = []string{"ip", "user", "api_key", "global", headerPrefix + "X"}

// defaultIPv6 is the bits of an IPv6 address that count, unless a file says otherwise.
const defaultIPv6 = 64

// lacking says what a rule does with a request that lacks a part of its key.
type lacking uint8

const (
	byClient lacking = iota // its address stands for the part
	notMet                  // the rule does not apply
	together                // all such requests have one count
	unnamed                 // its address is the key, as if the rule were by address; of Single alone
)

// lackingNames are the same in the words of a file.
var lackingNames = []string{"ip", "skip", "shared"}

// maxPartBytes bounds each part of a key: what is longer is hashed. With
// maxParts of them a key stays below the 1 KiB that a node takes.
const (
	maxParts     = 4
	maxPartBytes = 200
)

// key is how a rule makes its keys.
//
// Parts are joined by |, and a part's own | and \ are written \| and \\. What
// begins \- stands for a part that the request lacks, and \# is followed by the
// SHA-256 of one that is too long. So two different requests never share a key
// because of how their parts are written. Where an address is the key of a request
// without a user, \= precedes the name of a user that reads as an address.
type key struct {
	parts   []part
	lacking lacking
	ipv6    int // bits of an IPv6 address that count
}

func (k *key) isGlobal() bool { return len(k.parts) == 1 && k.parts[0].from == fromNothing }

// secret reports whether a part of the key is a credential: an API key, or a header whose
// name is that of one.
func (k *key) secret() bool {
	return slices.ContainsFunc(k.parts, func(p part) bool {
		return p.from == fromAPIKey || p.from == fromHeader && httpread.IsSecretName(p.header)
	})
}

func (k *key) append(b []byte, r *Request) (_ []byte, ok bool) {
	begun := len(b)
	for i, p := range k.parts {
		if i > 0 {
			b = append(b, '|')
		}
		text := ""
		switch p.from {
		case fromNothing:
			continue
		case fromClient:
			b = k.appendClient(b, r.Client)
			continue
		case fromUser:
			text = r.User
		case fromAPIKey:
			text = r.APIKey
		case fromHeader:
			text = strings.Join(r.lines(p.header), ",") // many lines are one list; of one, Join makes no copy
		}
		switch {
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

// appendClient writes an address as it counts: an IPv4 one within IPv6 as itself,
// and of an IPv6 one the network alone, as its users pick the rest.
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

// isAddress reports whether appendClient may write a text.
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

// String is the key as a file has it.
func (k *key) String() string {
	texts := make([]string, len(k.parts))
	for i, p := range k.parts {
		texts[i] = p.String()
	}
	return strings.Join(texts, "|")
}

func (p part) String() string {
	if p.from == fromHeader {
		return headerPrefix + p.header
	}
	return keyNames[p.from]
}

// headerPrefix begins the name of what is taken from a header.
const headerPrefix = "header:"

// headerName is the name in "header:X", as it is written.
func headerName(text string) (name string, ok bool) {
	name, ok = strings.CutPrefix(text, headerPrefix)
	return strings.TrimSpace(name), ok
}
