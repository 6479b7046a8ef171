package cluster

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/internal/conns"
)

const defaultForget = 5 * time.Minute

// Config configures a gossip cluster. Name and Bind are required.
type Config struct {
	// Name is the full name of the member, different at every start: a label and an
	// incarnation. It has at most 128 bytes.
	Name string
	// Bind is the "host:port" to listen on, TCP and UDP. Port 0 picks a port that is free for both. An
	// empty or unspecified host (0.0.0.0, ::) listens on all interfaces.
	Bind string
	// Advertise is the "host:port" that other nodes dial. The default is the bound address. Port 0
	// stands for the bound port. If Bind is an address, Advertise must be of the same family. An IPv6
	// address needs no brackets if the port is the port of Bind.
	//
	// If Bind has no address either, the source address of the default route is advertised, and Start
	// logs it. IPv4 has precedence, unless the host of Bind is "::". Without a default route, Start uses the
	// only address that other machines can dial. If there are several candidates, Start returns an
	// error that names them.
	Advertise string
	// Join has addresses of any members: an IP address or a DNS name, with or without a
	// port. Without a port, the port of Bind is used. Every address of a name is tried. The
	// member looks up the names again every 2 to 4 s, and every 8 to 16 s while all their
	// addresses are members. If Join is empty, this member waits for other members to find it.
	Join []string
	// Region is the name of the region, at most 64 bytes. Members of other regions are refused.
	Region string
	// Regions has, for each other region, addresses that reach any of its nodes: "host:port", where a
	// DNS name stands for all of its addresses. The names are looked up again before each attempt to
	// connect. With TLS, but without ServerName and CertificateNames, the certificate of a node must have
	// the address to which the name resolves, as with Join. The name of a region has at most 64 bytes.
	// Regions needs a Region.
	Regions map[string][]string
	// Seed is a fingerprint of the key of the ids. Members with a different Seed are refused.
	Seed [16]byte
	// Secrets has at most 16 secrets of 16, 24 or 32 bytes each. The first secret encrypts
	// gossip. Any secret that both sides have authenticates a peer connection and, without
	// TLS, puts the connection under TLS 1.3 by a key pair of the secret. Without secrets, any host
	// that reaches the port can join, so Bind must be a loopback address, unless Network is set.
	Secrets [][]byte
	// RegionSecrets has, for each of Regions, the secrets that only this region and the other region
	// share: 16, 24 or 32 bytes each, at most 16 for a region, and together with Secrets at most 64.
	// They authenticate connections between the two regions, as Secrets do within a region. A holder of
	// such a secret can only send requests as a node of the other region, and is not a member. With
	// RegionSecrets, only members of this region may have its Secrets. Rotate RegionSecrets in two
	// steps, on all nodes of both regions: [old, new], [new]. If RegionSecrets is nil, all regions use
	// Secrets, and without CertificateNames a holder can state any region.
	RegionSecrets map[string][][]byte
	// TLS, if not nil, puts all TCP connections under mutual TLS. TLS needs a certificate for both ends
	// of a connection, and the roots that sign the certificates: RootCAs, or functions that verify in
	// their place. Whatever the value of ClientAuth, client certificates are required, and verified
	// against ClientCAs, or against RootCAs if ClientCAs is nil. The exception is RequireAnyClientCert
	// together with a VerifyPeerCertificate or VerifyConnection of the caller. The default of ServerName
	// is the dialled host.
	//
	// The functions of TLS are called for each connection, so that certificates and roots may change
	// while the member runs: GetCertificate and GetConfigForClient on the listening side;
	// GetClientCertificate and, with InsecureSkipVerify, VerifyConnection on the dialling side. There,
	// VerifyConnection has the dialled host in ServerName, even if the host is an address, unless TLS sets
	// ServerName. No session is
	// resumed, so each connection is verified. An open connection stays open.
	TLS *tls.Config
	// CertificateNames has, for Region and each of Regions, the names in the certificates of its nodes:
	// URIs, such as SPIFFE ids, and DNS names, among the subject alternative names. A part between
	// slashes or dots may be "*", which matches any part, or "{name}", which matches the label of Name.
	// A node is refused if its certificate has no name of the region that the node states, has names of
	// two regions, or has a different label. The certificate of a dialled node then need not have the
	// name of the dialled host. But unless TLS has InsecureSkipVerify, the certificate must have the
	// ServerName if that is set, and the dialled host if VerifyPeerCertificate is set. CertificateNames
	// needs TLS. Without CertificateNames, a certificate that TLS accepts stands for any name and
	// region.
	CertificateNames map[string][]string
	// Forget is how long a dead member stays in the roster of a large side. A side is large if, during
	// this time, it was at least as large as the set of members that it misses. New members count as
	// part of the side, also while they are joining. On a smaller side, the time is ten times as long.
	// Members that died before they served do not count as missing, and stay for Forget on every side.
	// The default is 5 minutes.
	Forget time.Duration
	// ForgetRefused sets View.Ended, so that the node above may leave members that have ended out of
	// its shares. The kernel of such a member closed all connections, and refuses new ones with
	// ECONNREFUSED. A firewall that splits the cluster and answers with resets has the same effect on both
	// sides. ForgetRefused must have the same value on all nodes, and has no effect on Windows.
	ForgetRefused bool
	// Logger is used for messages to operators. The default is slog.Default.
	Logger *slog.Logger
	// Network opens ports and connections. Nil stands for the network of the machine.
	Network Network
}

// validate returns all problems of c in a single error. c is not modified.
func (c Config) validate() error {
	var wrapped []error
	for _, problem := range c.Problems() {
		wrapped = append(wrapped, fmt.Errorf("cluster: %w", problem))
	}
	return errors.Join(wrapped...)
}

// Problems returns an error for each problem of c. The text of an error begins with the name of the
// field. Start returns all of them.
func (c Config) Problems() []error {
	var all problems
	switch {
	case c.Name == "":
		all.add("Name is empty: give each start of each member its own name")
	case len(c.Name) > detect.MaxName:
		all.add("Name %.20q... has %d bytes: use at most %d", c.Name, len(c.Name), detect.MaxName)
	}
	if len(c.Region) > detect.MaxRegion {
		all.add("Region %.20q... has %d bytes: use at most %d", c.Region, len(c.Region), detect.MaxRegion)
	}
	if err := checkAddress(c.Bind); err != nil {
		all.add("Bind: %w", err)
	} else if len(c.Secrets) == 0 && c.Network == nil && !conns.OnThisMachine(c.Bind) { // a name is not looked up: its addresses may change before the node listens
		all.add("Secrets is empty and Bind %q can be reached from other machines, so that anybody there could join, or flood the gossip: "+
			"give all nodes one secret (go run github.com/weir-go/weir/cmd/weir secret prints one), or Bind a loopback address such as 127.0.0.1:7946; "+
			"TLS alone leaves UDP open", c.Bind)
	}
	if c.Advertise != "" {
		advertise := addBrackets(c.Advertise, c.Bind)
		if err := checkAddress(advertise); err != nil {
			all.add("Advertise: %w", err)
		} else if host, _, _ := net.SplitHostPort(advertise); host == "" || net.ParseIP(host).IsUnspecified() || len(advertise) > detect.MaxAddr {
			all.add("Advertise %.40q needs a host of 1 to 255 bytes that others can dial", c.Advertise)
		} else if bind, _, err := net.SplitHostPort(c.Bind); err == nil && isOfOtherFamily(host, bind) {
			all.add("Advertise %q is of another address family than Bind %q, so that no node can dial it: advertise an address of Bind's family, or Bind to all addresses, like :7946", c.Advertise, c.Bind)
		}
	}
	for i, entry := range c.Join {
		if _, _, err := splitEntry(entry, "0"); err != nil {
			all.add("Join[%d]: %w", i, err)
		}
	}
	if c.Forget < 0 {
		all.add("Forget is %v: use 0 for %v, or more than 0", c.Forget, defaultForget)
	}
	return slices.Concat(all, c.regionProblems(), c.secretProblems(), c.tlsProblems(), c.certificateProblems())
}

// problems collects errors.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// tlsProblems returns the problems of TLS.
func (c Config) tlsProblems() (all problems) {
	t := c.TLS
	if t == nil {
		return nil
	}
	if len(t.Certificates) == 0 && (t.GetCertificate == nil && t.GetConfigForClient == nil || t.GetClientCertificate == nil) {
		all.add("TLS has no certificate for both ends of a connection: set Certificates, or GetClientCertificate and one of GetCertificate and GetConfigForClient")
	}
	own := t.VerifyPeerCertificate != nil || t.VerifyConnection != nil
	if t.InsecureSkipVerify && !own {
		all.add("TLS has InsecureSkipVerify, so this node would accept any server as a member: remove it, or set VerifyConnection")
	}
	// Without roots, crypto/tls uses the roots of the machine.
	dials := t.InsecureSkipVerify || t.RootCAs != nil
	listens := t.RootCAs != nil || t.ClientCAs != nil || t.GetConfigForClient != nil || t.ClientAuth == tls.RequireAnyClientCert && own
	if !dials || !listens {
		all.add("TLS has no roots, and the roots of the machine sign certificates for anybody: set RootCAs to the CA of the members' certificates")
	}
	return all
}

// regionProblems returns the problems of Regions.
func (c Config) regionProblems() (all problems) {
	if len(c.Regions) > 0 && c.Region == "" {
		all.add("Regions is set and Region is empty: name this node's own region too")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Regions)) {
		switch {
		case name == "":
			all.add("Regions has a region without a name: name each region")
		case len(name) > detect.MaxRegion:
			all.add("Regions[%.20q...] has a name of %d bytes: use at most %d", name, len(name), detect.MaxRegion)
		case name == c.Region:
			all.add("Regions[%q] is this node's own Region: name only other regions", name)
		}
		if len(c.Regions[name]) == 0 {
			all.add("Regions[%.20q] has no addresses: give at least one host:port that reaches a node of the region", name)
		}
		for i, entry := range c.Regions[name] {
			if err := checkEndpoint(entry); err != nil {
				all.add("Regions[%.20q][%d]: %w", name, i, err)
			}
		}
	}
	return all
}

// maxAllSecrets bounds Secrets and RegionSecrets together, because a listener derives an id from each
// secret for every connection.
const maxAllSecrets = 64

// secretProblems returns the problems of Secrets and RegionSecrets.
func (c Config) secretProblems() (all problems) {
	in := make(map[string]string) // by secret: the list that has the secret
	count := 0
	check := func(list string, secrets [][]byte) {
		if n := len(secrets); n > maxSecrets {
			all.add("%s has %d secrets: use at most %d", list, n, maxSecrets)
		}
		count += len(secrets)
		for i, secret := range secrets {
			if n := len(secret); n != 16 && n != 24 && n != 32 {
				all.add("%s[%d] has %d bytes: use 16, 24 or 32", list, i, n)
			} else if before, ok := in[string(secret)]; ok && before != list {
				all.add("%s[%d] is in %s too, so it would not prove a region: give each pair of regions secrets of its own, which no region uses between its members", list, i, before)
			} else {
				in[string(secret)] = list
			}
		}
	}
	check("Secrets", c.Secrets)
	if c.RegionSecrets != nil && len(c.Secrets) == 0 {
		all.add("RegionSecrets is set and Secrets is empty: give this region's members a secret too, or any host that reaches the port becomes a member")
	}
	for _, region := range slices.Sorted(maps.Keys(c.RegionSecrets)) {
		list := fmt.Sprintf("RegionSecrets[%.20q]", region)
		switch _, known := c.Regions[region]; {
		case region == c.Region && !known:
			all.add("%s is this node's own Region: its secrets are in Secrets", list)
		case !known:
			all.add("%s is not one of Regions: remove it, or give addresses of its nodes in Regions", list)
		case len(c.RegionSecrets[region]) == 0:
			all.add("%s has no secrets: give the secrets that both regions share", list)
		}
		check(list, c.RegionSecrets[region])
	}
	if count > maxAllSecrets {
		all.add("Secrets and RegionSecrets have %d secrets together: use at most %d", count, maxAllSecrets)
	}
	for _, region := range slices.Sorted(maps.Keys(c.Regions)) {
		if _, ok := c.RegionSecrets[region]; !ok && c.RegionSecrets != nil && region != c.Region {
			all.add("RegionSecrets has no secrets of %.20q: give secrets for each of Regions, or leave RegionSecrets nil", region)
		}
	}
	return all
}

// certificateProblems returns the problems of CertificateNames.
func (c Config) certificateProblems() (all problems) {
	if c.CertificateNames == nil {
		return all
	}
	if c.TLS == nil {
		all.add("CertificateNames is set and TLS is nil: set TLS, or remove CertificateNames")
	}
	regions := append(slices.Sorted(maps.Keys(c.Regions)), c.Region)
	for _, region := range regions {
		if _, ok := c.CertificateNames[region]; !ok {
			all.add("CertificateNames has no names of %.20q: give names for Region and for each of Regions, or leave CertificateNames nil", region)
		}
	}
	type named struct{ list, pattern string }
	var before []named
	for _, region := range slices.Sorted(maps.Keys(c.CertificateNames)) {
		list := fmt.Sprintf("CertificateNames[%.20q]", region)
		if !slices.Contains(regions, region) {
			all.add("%s is neither Region nor one of Regions: remove it, or add the region", list)
		}
		if len(c.CertificateNames[region]) == 0 {
			all.add("%s has no names: give the names in the certificates of its nodes", list)
		}
		for i, pattern := range c.CertificateNames[region] {
			if err := checkPattern(pattern); err != nil {
				all.add("%s[%d] %w", list, i, err)
			}
			for _, b := range before {
				if b.list != list && overlap(pattern, b.pattern) {
					all.add("%s[%d] %q and %q of %s match the same name: a certificate must belong to one region", list, i, pattern, b.pattern, b.list)
				}
			}
			before = append(before, named{list, pattern})
		}
	}
	return all
}

// checkEndpoint returns an error if entry is not a "host:port" that other nodes can listen on.
func checkEndpoint(entry string) error {
	if err := checkAddress(entry); err != nil {
		return err
	}
	if _, port, _ := net.SplitHostPort(entry); port == "0" {
		return fmt.Errorf("%q has port 0: give the port on which the nodes there listen", entry)
	}
	_, _, err := splitEntry(entry, "")
	return err
}

// withDefaults returns c with defaults for Forget, Logger and Network.
func (c Config) withDefaults() Config {
	c.Forget = cmp.Or(c.Forget, defaultForget)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Network == nil {
		c.Network = systemNetwork{}
	}
	return c
}

// splitEntry splits an entry of Join or Regions. If the entry has no port, p is the argument port.
func splitEntry(entry, port string) (host, p string, err error) {
	host = strings.TrimSuffix(strings.TrimPrefix(entry, "["), "]")
	if net.ParseIP(host) != nil || !strings.Contains(entry, ":") {
		if host == "" || strings.ContainsAny(host, "/, ") {
			return "", "", fmt.Errorf("%q is not a host: write a name or an address, with or without a port", entry)
		}
		return host, port, nil
	}
	if err := checkAddress(entry); err != nil {
		return "", "", err
	}
	host, p, _ = net.SplitHostPort(entry)
	if host == "" || strings.ContainsAny(host, "/, ") {
		return "", "", fmt.Errorf("%q has no host: write it like 10.0.0.1:7946", entry)
	}
	return host, p, nil
}
