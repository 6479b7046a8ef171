package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
)

// What a node says of itself is believed as far as what it proves itself with says
// the same. That is a secret, which is of one region where Config.RegionSecrets is set,
// and a certificate, which is where Config.CertificateNames is. Each of the two says so
// by itself: where both are set, both have to.
var (
	errIdentity = errors.New("cluster: the node does not prove its Name or Region")
	errUnproven = errors.New("cluster: the member does not accept this node's Name or Region: the secret in RegionSecrets, or the certificate, is of another")
)

// credential is a secret that proves nodes, and whose they are.
type credential struct {
	secret []byte
	region string // unless it proves nodes of any
	any    bool
}

// credentials are what id takes proof by: its own region's first.
func (id identity) credentials() []credential {
	own := credential{region: id.self.Region, any: id.regions == nil}
	var all []credential
	for _, own.secret = range id.secrets {
		all = append(all, own)
	}
	for _, region := range slices.Sorted(maps.Keys(id.regions)) {
		for _, secret := range id.regions[region] {
			all = append(all, credential{secret: secret, region: region})
		}
	}
	return all
}

// keys are the secrets by which id and nodes of a region prove themselves to each
// other.
func (id identity) keys(region string) [][]byte {
	switch {
	case id.regions != nil && region != id.self.Region:
		return id.regions[region]
	case len(id.secrets) == 0:
		return [][]byte{nil}
	}
	return id.secrets
}

// proves returns why a secret and a certificate do not stand for what a node says of
// itself, nil if they do.
func (id identity) proves(c credential, conn net.Conn, said hello) error {
	if !c.any && c.region != said.Region {
		return fmt.Errorf("%w: it claims region %q with a secret of region %q", errIdentity, said.Region, c.region)
	}
	return id.names.prove(conn, said.Region, said.Name)
}

// certificateNames are Config.CertificateNames. Without any, certificates say nothing.
type certificateNames map[string][]string

// anyPart and namePart stand for a whole part of a certificate's name.
const (
	anyPart  = "*"
	namePart = "{name}"
)

// prove returns why the certificate on the other end of conn does not say that it is
// of a node of a region that has a name, nil if it does. An empty name stands for any.
func (n certificateNames) prove(conn net.Conn, region, name string) error {
	if n == nil {
		return nil
	}
	secure, ok := conn.(*tlsConn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return fmt.Errorf("%w: it sent no certificate", errIdentity)
	}
	c := secure.ConnectionState().PeerCertificates[0]
	var of []string
	for _, r := range slices.Sorted(maps.Keys(n)) {
		if fit(n[r], c, "") {
			of = append(of, r)
		}
	}
	if len(of) != 1 || of[0] != region {
		return fmt.Errorf("%w: it claims region %q, but its certificate of %q matches CertificateNames of %q", errIdentity, region, namesOf(c), of)
	}
	if label := labelOf(name); label != "" && !fit(n[region], c, label) {
		return fmt.Errorf("%w: it claims the name %q, but its certificate is of %q", errIdentity, name, namesOf(c))
	}
	return nil
}

// namesOf are the names in a certificate that say whose it is.
func namesOf(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	return names
}

// labelOf is a member's name without its incarnation.
func labelOf(name string) string {
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		return name[:i]
	}
	return name
}

// fit reports whether a certificate has a name that fits one of patterns, for a node of
// that label, or for any if it is empty.
func fit(patterns []string, c *x509.Certificate, label string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if isURI(pattern) {
			return slices.ContainsFunc(c.URIs, func(uri *url.URL) bool { return fits(pattern, uri.String(), label) })
		}
		return slices.ContainsFunc(c.DNSNames, func(name string) bool {
			return fits(strings.ToLower(pattern), strings.ToLower(name), strings.ToLower(label))
		})
	})
}

func isURI(pattern string) bool { return strings.Contains(pattern, "://") }

// parts are those of a URI between slashes, and those of a DNS name between dots.
func parts(pattern string) []string {
	if isURI(pattern) {
		return strings.Split(pattern, "/")
	}
	return strings.Split(pattern, ".")
}

// fits reports whether a certificate's name fits a pattern part by part. What stands
// for any is never empty, so that "spiffe://example.org/*" is not of the trust domain
// itself.
func fits(pattern, name, label string) bool {
	return slices.EqualFunc(parts(pattern), parts(name), func(p, n string) bool {
		switch {
		case p == anyPart, p == namePart && label == "":
			return n != ""
		case p == namePart:
			return n == label
		}
		return p == n
	})
}

// overlap reports whether there is a name that fits both patterns.
func overlap(a, b string) bool {
	if isURI(a) != isURI(b) {
		return false
	}
	if !isURI(a) {
		a, b = strings.ToLower(a), strings.ToLower(b)
	}
	return slices.EqualFunc(parts(a), parts(b), func(p, q string) bool {
		return p == q || isAny(p) || isAny(q)
	})
}

func isAny(part string) bool { return part == anyPart || part == namePart }

// checkPattern returns what is wrong with a pattern of CertificateNames.
func checkPattern(pattern string) error {
	if pattern == "" {
		return errors.New("is empty: write a SPIFFE id, another URI, or a DNS name")
	}
	for i, part := range parts(pattern) {
		switch {
		case part == "" && !(isURI(pattern) && i == 1):
			return fmt.Errorf("%q has an empty part: write it as certificates have it", pattern)
		case !isAny(part) && strings.ContainsAny(part, "*{} "):
			return fmt.Errorf("%q has a part %q: * and {name} stand for whole parts, between dots or slashes", pattern, part)
		}
	}
	return nil
}

// clientTLS is c as the dialling end uses it. Where certificates say whose they are,
// the host that is dialled need not be in them, as it is in none of SPIFFE's: the
// chain is verified as it would be otherwise, and prove looks at the names. Where the
// caller verifies by its own means, c stays as it is.
func (n certificateNames) clientTLS(c *tls.Config) *tls.Config {
	if c == nil || n == nil || c.ServerName != "" || c.InsecureSkipVerify || c.VerifyPeerCertificate != nil {
		return c
	}
	c = c.Clone()
	own := c.VerifyConnection
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(s tls.ConnectionState) error {
		chain := x509.VerifyOptions{Roots: c.RootCAs, Intermediates: x509.NewCertPool()}
		if c.Time != nil {
			chain.CurrentTime = c.Time()
		}
		for _, intermediate := range s.PeerCertificates[1:] {
			chain.Intermediates.AddCert(intermediate)
		}
		if _, err := s.PeerCertificates[0].Verify(chain); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		if own != nil {
			return own(s)
		}
		return nil
	}
	return c
}
