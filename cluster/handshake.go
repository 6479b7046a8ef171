package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// The first byte of every TCP stream between members says what the stream is
// for. It comes before the TLS handshake, if there is TLS, and starts neither
// an HTTP request nor a TLS record.
const (
	firstByteCheck  = 0xC7
	firstByteGossip = 0xC8
)

// The handshake on a connection for checks, after the first byte:
//
//	dialler  → version 1 | nonce 16
//	listener → version 1 | nonce 16
//	dialler  → length 2 | hello | MAC 32
//	listener → status 1 | length 2 | hello | MAC 32
//
// A MAC is HMAC-SHA256 under a shared secret, over a label that differs by
// direction, both nonces, and what both have said. The dialler uses its first
// secret; the listener tries all of its own and answers under the one that
// fits, so that secrets can be rotated. Without secrets the key is empty: a
// side without secrets is refused by a side with some. A listener that could
// not authenticate the dialler says nothing of itself: its hello is empty.
const (
	nonceSize = 16
	macSize   = sha256.Size
	maxHello  = 1 << 10
	// handshakeWait is how long a connection may take to say who it is.
	handshakeWait = 2 * time.Second

	dialLabel   = "weir check dial"
	answerLabel = "weir check answer"
)

// What a listener answers.
const (
	statusWelcome byte = iota
	statusSecret
	statusSeed
	statusRegion
	statusLeft
	statusGarbage
)

// Why a connection is refused or cannot be opened, in words that say what to do.
var (
	errVersion = errors.New("cluster: the member speaks another version of the peer protocol: run releases that speak the same one")
	errSecret  = errors.New("cluster: the member and this node share no secret: the first of Secrets on each node must be among the Secrets of all others")
	errSeed    = errors.New("cluster: the member has another Seed: give all nodes the same one")
	errRegion  = errors.New("cluster: the member is in another Region: join members of this node's region")
	errAstray  = errors.New("cluster: an address in Regions leads to the wrong region: give addresses of nodes in the region that they are listed for")
	errTLS     = errors.New("cluster: no TLS connection: set TLS on all nodes or on none, with certificates that each accepts")
	errAway    = errors.New("cluster: the node at the address has left its region: the addresses should lead to others, too")
	errName    = errors.New("cluster: another member answers at the address")
	errSilent  = errors.New("cluster: nobody answers at the address: check that it is right, that a node listens there, and that no firewall is between")
	errHungUp  = errors.New("cluster: what answers at the address closed the connection without a word: if it has TLS set this node needs it too, and it may be crowded")
	errForeign = errors.New("cluster: what answers at the address is no member: check the address and its port")
)

// hello is what each side of a connection says of itself. A node that wants to
// reach its own region is a member; one that wants to reach another region may
// ask, and no more.
type hello struct {
	Name   string   `codec:"n"`
	Addr   string   `codec:"a"`
	Region string   `codec:"r"`
	Seed   [16]byte `codec:"s"` // fingerprint of the key of the id hash
	To     string   `codec:"t"` // the region that a dialler wants to reach
}

// abroad says that whoever says this is of another region than it wants to reach.
func (h hello) abroad() bool { return h.Region != h.To }

// misses is why a dialler's hello does not fit a listener of that region, nil if
// it does. Who has no Region neither reaches other regions nor is reached by them.
func (h hello) misses(region string) error {
	switch {
	case !h.abroad() && h.Region != region:
		return fmt.Errorf("%w: a node in %q would join one in %q", errRegion, h.Region, region)
	case h.To != region || h.abroad() && (h.Region == "" || region == ""):
		return fmt.Errorf("%w: a node in %q looks for %q there, and finds one in %q", errAstray, h.Region, h.To, region)
	}
	return nil
}

func (h hello) encode() ([]byte, error) {
	b := encode(h)
	if len(b) > maxHello {
		return nil, fmt.Errorf("cluster: name, address and region take %d bytes, not more than %d", len(b), maxHello)
	}
	return b, nil
}

func decodeHello(b []byte) (h hello, err error) {
	if err := decode(b, &h); err != nil {
		return hello{}, fmt.Errorf("%w: %v", errGarbage, err)
	}
	if h.Name == "" {
		return hello{}, fmt.Errorf("%w: a member without a name", errGarbage)
	}
	if len(h.Region) > maxRegion || len(h.To) > maxRegion {
		return hello{}, fmt.Errorf("%w: a region's name of more than %d bytes", errGarbage, maxRegion)
	}
	return h, nil
}

// identity is what a node needs to say who it is and to check who others are.
type identity struct {
	self    hello
	secrets [][]byte
	left    *atomic.Bool // the node is no member any more, and refuses other regions; nil: it is
}

func (id identity) keys() [][]byte {
	if len(id.secrets) == 0 {
		return [][]byte{nil}
	}
	return id.secrets
}

// sign is the MAC of the parts, each with its length, so that no two lists of
// parts are signed alike.
func sign(key []byte, label string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	var size [4]byte
	for _, p := range parts {
		binary.BigEndian.PutUint32(size[:], uint32(len(p)))
		m.Write(size[:])
		m.Write(p)
	}
	return m.Sum(nil)
}

func greeting() (b [1 + nonceSize]byte) {
	b[0] = protocol
	rand.Read(b[1:])
	return b
}

func appendHello(dst, hello, mac []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(hello)))
	return append(append(dst, hello...), mac...)
}

func readHello(r io.Reader) (hello, mac []byte, err error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n > maxHello {
		return nil, nil, fmt.Errorf("%w: a hello of %d bytes, not more than %d", errOversized, n, maxHello)
	}
	b := make([]byte, n+macSize)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, nil, err
	}
	return b[:n:n], b[n:], nil
}

// dial is the dialler's side, after the first byte and TLS: it wants to reach a
// node of region. Its error wraps one of the sentinels above.
func (id identity) dial(conn net.Conn, region string) (hello, error) {
	self := id.self
	self.To = region
	asked, err := self.encode()
	if err != nil {
		return hello{}, err
	}
	mine := greeting()
	if _, err := conn.Write(mine[:]); err != nil {
		return hello{}, fmt.Errorf("%w: %v", errSilent, err)
	}
	var theirs [1 + nonceSize]byte
	if _, err := io.ReadFull(conn, theirs[:1]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return hello{}, errHungUp
		}
		return hello{}, unanswered(err)
	}
	switch v := theirs[0]; {
	case v == protocol:
	case v == tlsAlert:
		return hello{}, errTLS
	case v < plausibleVersions:
		return hello{}, fmt.Errorf("%w: it has %d, this node %d", errVersion, v, protocol)
	default:
		return hello{}, errForeign
	}
	if _, err := io.ReadFull(conn, theirs[1:]); err != nil {
		return hello{}, unanswered(err)
	}
	key := id.keys()[0]
	if _, err := conn.Write(appendHello(nil, asked, sign(key, dialLabel, mine[:], theirs[:], asked))); err != nil {
		return hello{}, fmt.Errorf("%w: %v", errSilent, err)
	}
	var status [1]byte
	if _, err := io.ReadFull(conn, status[:]); err != nil {
		return hello{}, unanswered(err)
	}
	answer, mac, err := readHello(conn)
	if err != nil {
		return hello{}, unanswered(err)
	}
	if status[0] == statusSecret {
		return hello{}, errSecret
	}
	if status[0] == statusGarbage || status[0] > statusGarbage {
		return hello{}, errForeign
	}
	if !hmac.Equal(mac, sign(key, answerLabel, mine[:], theirs[:], asked, status[:], answer)) {
		return hello{}, errSecret
	}
	peer, err := decodeHello(answer)
	if err != nil {
		return hello{}, fmt.Errorf("%w: %v", errForeign, err)
	}
	switch status[0] {
	case statusSeed:
		return peer, errSeed
	case statusLeft:
		return peer, errAway
	}
	if err := self.misses(peer.Region); err != nil {
		return peer, err
	}
	if status[0] == statusRegion {
		return peer, errForeign // it refuses what fits
	}
	return peer, nil
}

// plausibleVersions bounds what may be another version of the protocol; a
// first byte above it is something else altogether.
const plausibleVersions = 16

// The first bytes of TLS records: what a side with TLS sends to one without.
const (
	tlsAlert     = 0x15
	tlsHandshake = 0x16
)

// accept is the listener's side, after the first byte and TLS. With an error,
// reason is what it counts under; none if the dialler just went away.
func (id identity) accept(conn net.Conn) (peer hello, reason string, err error) {
	var theirs [1 + nonceSize]byte
	if _, err := io.ReadFull(conn, theirs[:1]); err != nil {
		return hello{}, stopped(err), err
	}
	switch v := theirs[0]; {
	case v == tlsHandshake:
		return hello{}, reasonTLS, errTLS
	case v >= plausibleVersions:
		return hello{}, reasonGarbage, fmt.Errorf("%w: it starts with %#x", errGarbage, v)
	}
	mine := greeting()
	if theirs[0] != protocol {
		conn.Write(mine[:])
		return hello{}, reasonVersion, fmt.Errorf("%w: it has %d, this node %d", errVersion, theirs[0], protocol)
	}
	if _, err := io.ReadFull(conn, theirs[1:]); err != nil {
		return hello{}, stopped(err), err
	}
	if _, err := conn.Write(mine[:]); err != nil {
		return hello{}, stopped(err), err
	}
	asked, mac, err := readHello(conn)
	if err != nil {
		if errors.Is(err, errOversized) {
			return hello{}, reasonOversized, err
		}
		return hello{}, stopped(err), err
	}
	var key []byte
	known := false
	for _, k := range id.keys() {
		if hmac.Equal(mac, sign(k, dialLabel, theirs[:], mine[:], asked)) {
			key, known = k, true
		}
	}
	if !known {
		conn.Write(appendHello([]byte{statusSecret}, nil, make([]byte, macSize)))
		return hello{}, reasonAuthentication, errSecret
	}
	status := statusWelcome
	peer, err = decodeHello(asked)
	switch {
	case err != nil:
		status, reason = statusGarbage, reasonGarbage
	case peer.Seed != id.self.Seed:
		status, reason, err = statusSeed, reasonSeed, errSeed
	default:
		if err = peer.misses(id.self.Region); err != nil {
			status, reason = statusRegion, reasonRegion
		} else if peer.abroad() && id.left != nil && id.left.Load() {
			status, err = statusLeft, errLeft
		}
	}
	answer, e := id.self.encode()
	if e != nil {
		return hello{}, "", e
	}
	mac = sign(key, answerLabel, theirs[:], mine[:], asked, []byte{status}, answer)
	if _, e := conn.Write(appendHello([]byte{status}, answer, mac)); e != nil && err == nil {
		return hello{}, stopped(e), e
	}
	return peer, reason, err
}

// unanswered is what a failed read of the other's answer means.
func unanswered(err error) error {
	switch {
	case errors.Is(err, errOversized):
		return fmt.Errorf("%w: %v", errForeign, err)
	case alerted(err):
		return fmt.Errorf("%w: %v", errTLS, err)
	}
	return fmt.Errorf("%w: %v", errSilent, err)
}

// stopped is the reason that a failed read or write counts under.
func stopped(err error) string {
	var timeout net.Error
	switch {
	case alerted(err):
		return reasonTLS
	case errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	}
	return ""
}

// alerted says that TLS was not agreed upon. With TLS 1.3 a client learns only
// when it reads that its certificate was not accepted.
func alerted(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
}

// openStream dials addr, says with the first byte what the stream is for, and
// wraps it in TLS if t is not nil. ctx bounds all of it, and nothing after it.
func openStream(ctx context.Context, dial func(context.Context, string) (net.Conn, error), t *tls.Config, addr string, first byte) (net.Conn, error) {
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errSilent, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	_, err = conn.Write([]byte{first})
	if err != nil {
		err = fmt.Errorf("%w: %v", errSilent, err)
	}
	out := conn
	if err == nil && t != nil {
		if t.ServerName == "" {
			t = t.Clone()
			t.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secure := tls.Client(conn, t)
		if e := secure.HandshakeContext(ctx); e != nil {
			err = fmt.Errorf("%w: %v", errTLS, e)
		}
		out = secure
	}
	if !stop() && err == nil {
		err = fmt.Errorf("%w: %v", errSilent, context.Cause(ctx))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return out, nil
}
