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

// gate decides which clients may use the API. A nil gate admits every client. Before the gate has admitted a
// request, the API reveals no path (api.answer), except that the challenge for a token shows whether there is a page.
type gate struct {
	tokens      [][sha256.Size]byte // hashes, so that the time of a comparison reveals neither a token nor its length
	mutualTLS   bool
	certificate func(*x509.Certificate) bool
}

// newGate returns the gate of Options, or of CheckOptions that are not Open. The argument name is the name of
// that type, for errors. The argument open describes how to admit every client.
func newGate(o Options, name, open string) (*gate, error) {
	g := &gate{mutualTLS: o.MutualTLS, certificate: o.Certificate}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w "+name+": "+format, append([]any{weir.ErrInvalid}, args...)...))
	}
	if len(o.Tokens) == 0 && !o.MutualTLS {
		wrong("neither Tokens nor MutualTLS is set: add a token of %d bytes or more, or set MutualTLS; %s", minTokenBytes, open)
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

// admit returns the name of the client, or a refusal.
func (g *gate) admit(w http.ResponseWriter, r *http.Request) (by string, err error) {
	return g.admitBy(w, r, (*gate).findToken, `Bearer realm="weir"`)
}

// admitBrowser is like admit, but also accepts the token as a password, because browsers can send it in no
// other way.
func (g *gate) admitBrowser(w http.ResponseWriter, r *http.Request) (by string, err error) {
	return g.admitBy(w, r, (*gate).findTokenOrPassword, `Basic realm="weir: any name, and a token as the password", charset="UTF-8"`)
}

// admitBy returns the name of the client. The function token returns the index of the token in a request, and
// challenge is the WWW-Authenticate of a refusal by this function.
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

// findToken returns the index of the bearer token of a request.
func (g *gate) findToken(r *http.Request) (int, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if len(r.Header["Authorization"]) != 1 || !strings.EqualFold(scheme, "Bearer") {
		return 0, refuse(http.StatusUnauthorized, "send one Authorization header: Bearer and a token")
	}
	return g.indexOf(strings.TrimSpace(token))
}

// findTokenOrPassword is findToken, but also accepts the token as the password of HTTP Basic.
func (g *gate) findTokenOrPassword(r *http.Request) (int, error) {
	if _, password, ok := r.BasicAuth(); ok && len(r.Header["Authorization"]) == 1 {
		return g.indexOf(strings.TrimSpace(password))
	}
	return g.findToken(r)
}

// indexOf returns the index of a token.
func (g *gate) indexOf(token string) (int, error) {
	given := sha256.Sum256([]byte(token))
	if i := indexInConstantTime(g.tokens, given); i >= 0 {
		return i, nil
	}
	return 0, refuse(http.StatusUnauthorized, "the token is not allowed")
}

// indexInConstantTime returns the index of the last hash that equals the given hash, and -1 if no hash does. Its
// duration depends only on the number of hashes.
func indexInConstantTime(hashes [][sha256.Size]byte, given [sha256.Size]byte) int {
	found := -1
	for i := range hashes {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hashes[i][:], given[:]), i, found)
	}
	return found
}
