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

// The name and the region in a hello are compared with the credentials of its sender. With
// Config.RegionSecrets, a secret proves one region. With Config.CertificateNames, a certificate proves
// one region, and may prove a label. If both are set, both must match.
var (
	errIdentity = errors.New("cluster: the node does not prove its Name or Region")
	errUnproven = errors.New("cluster: the member does not accept this node's Name or Region: the secret in RegionSecrets belongs to a different region, or the certificate to a different name or region")
)

// credential is a secret, and the region to which a node that proves the secret belongs.
type credential struct {
	secret    []byte
	region    string // not used if anyRegion is true
	anyRegion bool   // the secret proves nodes of any region
}

// credentials returns the credentials that id accepts, beginning with Secrets.
func (id identity) credentials() []credential {
	own := credential{region: id.self.Region, anyRegion: id.regions == nil}
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

// keys returns the secrets that id has in common with the nodes of a region. A node without Secrets has
// a single, empty secret.
func (id identity) keys(region string) [][]byte {
	switch {
	case id.regions != nil && region != id.self.Region:
		return id.regions[region]
	case len(id.secrets) == 0:
		return [][]byte{nil}
	}
	return id.secrets
}

// checkProof returns an error if the credential c and the certificate of conn do not prove the hello that
// the node has sent.
func (id identity) checkProof(c credential, conn net.Conn, said hello) error {
	if !c.anyRegion && c.region != said.Region {
		return fmt.Errorf("%w: it claims region %q with a secret of region %q", errIdentity, said.Region, c.region)
	}
	return id.names.checkCertificate(conn, said.Region, said.Name)
}

// certificateNames is Config.CertificateNames. If certificateNames is nil, certificates prove no name
// and no region.
type certificateNames map[string][]string

// anyPart and namePart stand for a whole part of a name in a certificate.
const (
	anyPart  = "*"
	namePart = "{name}"
)

// checkCertificate returns an error if the certificate of the other end of conn does not prove a region
// and a name. An empty name stands for any name.
func (n certificateNames) checkCertificate(conn net.Conn, region, name string) error {
	if n == nil {
		return nil
	}
	secure, ok := conn.(*tlsConn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return fmt.Errorf("%w: it sent no certificate", errIdentity)
	}
	c := secure.ConnectionState().PeerCertificates[0]
	var regions []string // regions whose names are in the certificate
	for _, r := range slices.Sorted(maps.Keys(n)) {
		if matchesAny(n[r], c, "") {
			regions = append(regions, r)
		}
	}
	if len(regions) != 1 || regions[0] != region {
		return fmt.Errorf("%w: it claims region %q, but its certificate of %q matches CertificateNames of %q", errIdentity, region, namesOf(c), regions)
	}
	if label := labelOf(name); label != "" && !matchesAny(n[region], c, label) {
		return fmt.Errorf("%w: it claims the name %q, but its certificate is of %q", errIdentity, name, namesOf(c))
	}
	return nil
}

// namesOf returns the DNS names and the URIs of a certificate.
func namesOf(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	return names
}

// labelOf returns the name of a member without its incarnation.
func labelOf(name string) string {
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		return name[:i]
	}
	return name
}

// matchesAny reports whether a certificate has a name that matches any of patterns, for a node with the
// given label. An empty label stands for any label.
func matchesAny(patterns []string, c *x509.Certificate, label string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if isURI(pattern) {
			return slices.ContainsFunc(c.URIs, func(uri *url.URL) bool { return matches(pattern, uri.String(), label) })
		}
		return slices.ContainsFunc(c.DNSNames, func(name string) bool {
			return matches(strings.ToLower(pattern), strings.ToLower(name), strings.ToLower(label))
		})
	})
}

func isURI(pattern string) bool { return strings.Contains(pattern, "://") }

// parts returns the parts of a URI between slashes, or the parts of a DNS name between dots.
func parts(pattern string) []string {
	if isURI(pattern) {
		return strings.Split(pattern, "/")
	}
	return strings.Split(pattern, ".")
}

// matches reports whether a name in a certificate matches a pattern part by part. A part that stands
// for any part does not match an empty part, so that "spiffe://example.org/*" does not match the trust
// domain itself.
func matches(pattern, name, label string) bool {
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

// overlap reports whether a name could match both patterns.
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

// checkPattern returns an error if a pattern of CertificateNames is invalid.
func checkPattern(pattern string) error {
	if pattern == "" {
		return errors.New("is empty: write a SPIFFE id, another URI, or a DNS name")
	}
	for i, part := range parts(pattern) {
		switch {
		case part == "" && !(isURI(pattern) && i == 1):
			return fmt.Errorf("%q has an empty part: write the name as it is in certificates", pattern)
		case !isAny(part) && strings.ContainsAny(part, "*{} "):
			return fmt.Errorf("%q has a part %q: * and {name} stand for whole parts, between dots or slashes", pattern, part)
		}
	}
	return nil
}

// clientTLS returns the configuration for the dialling end. With CertificateNames, a certificate
// need not contain the dialled host, because SPIFFE certificates never do: the chain is verified as
// usual, and checkCertificate checks the names. If n is nil, or c has a ServerName, InsecureSkipVerify or
// VerifyPeerCertificate, clientTLS returns c unchanged.
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
