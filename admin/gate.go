package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-go/weir"
)

// gate decides which clients may ask; nil is open to all. The API has nothing to say, not even
// which paths there are, before the gate has admitted a request (admin.answer).
type gate struct {
	tokens      [][sha256.Size]byte // hashes: comparing them tells nothing of a token, nor of its length
	mutualTLS   bool
	certificate func(*x509.Certificate) bool
}

func newGate(o Options) (*gate, error) {
	g := &gate{mutualTLS: o.MutualTLS, certificate: o.Certificate}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w Options: "+format, append([]any{weir.ErrInvalid}, args...)...))
	}
	if len(o.Tokens) == 0 && !o.MutualTLS {
		wrong("neither Tokens nor MutualTLS: give it a token of %d bytes or more, or set MutualTLS; it is never open to all", minTokenBytes)
	}
	if o.Certificate != nil && !o.MutualTLS {
		wrong("Certificate is set and MutualTLS is not: set MutualTLS too, or no client is asked for a certificate")
	}
	for i, token := range o.Tokens {
		if len(token) < minTokenBytes {
			wrong("Tokens[%d] has %d bytes: use %d or more, at random", i, len(token), minTokenBytes)
		}
		g.tokens = append(g.tokens, sha256.Sum256(token))
	}
	return g, errors.Join(errs...)
}

// admit returns the name of the client, or why not to answer it.
func (g *gate) admit(w http.ResponseWriter, r *http.Request) (by string, err error) {
	return g.admitBy(w, r, (*gate).findToken, `Bearer realm="weir"`)
}

// admitBrowser is admit where people ask, whose browsers know no tokens but passwords.
func (g *gate) admitBrowser(w http.ResponseWriter, r *http.Request) (by string, err error) {
	return g.admitBy(w, r, (*gate).findTokenOrPassword, `Basic realm="weir: any name, and a token as the password", charset="UTF-8"`)
}

// admitBy returns the name of the client. token finds the index of the token that a request has, and
// challenge asks for one.
func (g *gate) admitBy(w http.ResponseWriter, r *http.Request, token func(*gate, *http.Request) (int, error), challenge string) (by string, err error) {
	if g == nil {
		return "", nil
	}
	if g.mutualTLS {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
			return "", refuse(http.StatusForbidden, "a client certificate that the server has verified is needed")
		}
		leaf := r.TLS.VerifiedChains[0][0]
		if g.certificate != nil && !g.certificate(leaf) {
			return "", refuse(http.StatusForbidden, "this client certificate is not allowed")
		}
		by = leaf.Subject.CommonName
	}
	if len(g.tokens) > 0 {
		i, err := token(g, r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", challenge)
			return "", err
		}
		if by == "" {
			by = "token " + strconv.Itoa(i+1)
		}
	}
	return by, nil
}

// findToken is the index of the token that a request has.
func (g *gate) findToken(r *http.Request) (int, error) {
	header := r.Header["Authorization"]
	if len(header) != 1 {
		return 0, refuse(http.StatusUnauthorized, "send one Authorization header: Bearer and a token")
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return 0, refuse(http.StatusUnauthorized, "send one Authorization header: Bearer and a token")
	}
	return g.indexOf(strings.TrimSpace(token))
}

// findTokenOrPassword is the same where the token may be the password of HTTP Basic.
func (g *gate) findTokenOrPassword(r *http.Request) (int, error) {
	if _, password, ok := r.BasicAuth(); ok && len(r.Header["Authorization"]) == 1 {
		return g.indexOf(strings.TrimSpace(password))
	}
	return g.findToken(r)
}

// indexOf is the index of a token.
func (g *gate) indexOf(token string) (int, error) {
	given := sha256.Sum256([]byte(token))
	if i := indexInConstantTime(g.tokens, given); i >= 0 {
		return i, nil
	}
	return 0, refuse(http.StatusUnauthorized, "the token is not allowed")
}

// indexInConstantTime is the index of the last hash that is the one given, -1 if
// none is. Its time depends on how many there are alone.
func indexInConstantTime(hashes [][sha256.Size]byte, given [sha256.Size]byte) int {
	found := -1
	for i := range hashes {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hashes[i][:], given[:]), i, found)
	}
	return found
}
