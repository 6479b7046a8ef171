package cluster

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip"
)

// The first byte of every TCP stream between members says what the stream is
// for. It comes before the TLS handshake, if there is TLS, and starts neither
// an HTTP request nor a TLS record.
const (
	firstByteCheck  = 0xC7
	firstByteGossip = 0xC8
)

// The handshake on a connection for checks, after the first byte and, with Config.TLS, TLS:
//
//	dialler  → opening 1 | proof 1 | reserved 8
//	both prove a common secret: see prove.go
//	dialler  → length 2 | hello
//	listener → status 1 | length 2 | hello
//
// The hellos state the versions and capabilities that each side speaks. The connection
// speaks the newest common version (hello.agree). A reader ignores fields of a hello that
// it does not know, and bytes after it.
//
// With secrets, each side sends its hello after the other has proved a common secret, and under
// TLS. So a node without one learns neither names nor addresses. A side without secrets is
// refused by a side with some.
//
// An attacker that passes everything on unchanged, to another member or back to the
// dialler's own port, has two nodes shake hands that both hold the secret: each
// learns which node the other is, and a dialler leaves one that it did not want.
const (
	maxHello = 1 << 10
	// handshakeWait is how long a handshake may take.
	handshakeWait = 2 * time.Second
)

// What a listener answers.
const (
	statusWelcome byte = iota
	statusSeed
	statusRegion
	statusLeft
	statusIdentity // it is not proven to be what it says it is
	statusGarbage
	statusVersion // no common version
)

// Why a connection is refused or cannot be opened, in words that say what to do.
var (
	errVersion = errors.New("cluster: the member speaks another version of the peer protocol: upgrade one release at a time, as each speaks its own version and the one before")
	errSecret  = errors.New("cluster: the member and this node share no secret: give the Secrets of all nodes at least one in common")
	errSeed    = gossip.ErrSeed
	errRegion  = gossip.ErrRegion
	errAstray  = errors.New("cluster: an address in Regions leads to the wrong region: give addresses of nodes in the region that they are listed for")
	errTLS     = errors.New("cluster: no TLS connection: set TLS on all nodes or on none, with certificates that each accepts")
	// errCertificate is errTLS where both sides have TLS.
	errCertificate = fmt.Errorf("%w: the member and this node do not trust each other's certificates, so that one of them needs the other's CA among its roots", errTLS)

	errAway    = errors.New("cluster: the node at the address has left its region: the addresses should lead to others, too")
	errName    = errors.New("cluster: another member answers at the address")
	errSelf    = errors.New("cluster: the address that a member advertises leads back to this node: set Advertise on that member to one that other machines dial, unless it ran here before this node")
	errShared  = errors.New("cluster: two members advertise one address: set Advertise on each to one that leads to it alone")
	errSilent  = errors.New("cluster: no answer at the address: check that it is right, that a node listens there, and that no firewall is between")
	errHungUp  = errors.New("cluster: the server at the address closed the connection without an answer: it may have ended or be starting, or have too many connections")
	errForeign = errors.New("cluster: the server at the address is not a member: check the address and its port")
	errRefused = errors.New("cluster: the member refuses this node for a reason that this release does not know: see the member's log")
)

// hello is what each side of a connection states of itself. A node that wants to
// reach its own region is a member; one that wants to reach another region may
// ask, and no more. Its keys keep their meaning in all versions.
type hello struct {
	Name   string   `codec:"n"`
	Addr   string   `codec:"a"`
	Region string   `codec:"r"`
	Seed   [16]byte `codec:"s"` // fingerprint of the key of the id hash
	To     string   `codec:"t"` // the region that a dialler wants to reach

	// What the node speaks.
	Oldest       uint8  `codec:"o,omitempty"`
	Newest       uint8  `codec:"v,omitempty"`
	Capabilities uint64 `codec:"c,omitempty"`
}

// abroad reports whether the node is of another region than it wants to reach.
func (h hello) abroad() bool { return h.Region != h.To }

// misses returns why a dialler's hello does not fit a listener of that region, nil if
// it does. A node without a Region neither reaches other regions nor is reached by them.
func (h hello) misses(region string) error {
	switch {
	case !h.abroad() && h.Region != region:
		return fmt.Errorf("%w: a node of region %q asked to join one of %q", errRegion, h.Region, region)
	case h.To != region || h.abroad() && (h.Region == "" || region == ""):
		return fmt.Errorf("%w: a node of region %q expected one of %q there, and found one of %q", errAstray, h.Region, h.To, region)
	}
	return nil
}

func (h hello) encode() ([]byte, error) {
	b := gossip.Encode(h)
	if len(b) > maxHello {
		return nil, fmt.Errorf("cluster: name, address and region take %d bytes, not more than %d", len(b), maxHello)
	}
	return b, nil
}

func decodeHello(b []byte) (h hello, err error) {
	if err := gossip.Decode(b, &h); err != nil {
		return hello{}, fmt.Errorf("%w: %v", errGarbage, err)
	}
	if h.Name == "" {
		return hello{}, fmt.Errorf("%w: a member without a name", errGarbage)
	}
	if len(h.Region) > detect.MaxRegion || len(h.To) > detect.MaxRegion {
		return hello{}, fmt.Errorf("%w: a region's name of more than %d bytes", errGarbage, detect.MaxRegion)
	}
	if h.Oldest > h.Newest {
		return hello{}, fmt.Errorf("%w: versions from %d to %d", errGarbage, h.Oldest, h.Newest)
	}
	return h, nil
}

// identity is what a node proves itself with and judges the proofs of others by. No side
// sends its hello before the other has proved that it holds a common secret: a node
// without one learns neither names nor addresses.
type identity struct {
	self    hello
	secrets [][]byte
	regions map[string][][]byte // secrets of other regions: Config.RegionSecrets; nil: theirs are the same
	names   certificateNames
	left    *atomic.Bool       // the node is no member any more, and refuses other regions; nil: it is
	pairs   map[string]keyPair // of each secret; of one that it lacks the key pair is derived for each connection
}

func appendHello(dst, hello []byte) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(hello))), hello...)
}

func readHello(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n > maxHello {
		return nil, fmt.Errorf("%w: a hello of %d bytes, not more than %d", errOversized, n, maxHello)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// dial is the dialler's side, after the first byte and Config.TLS: it wants to reach a
// node of region. It returns the connection that replaces conn. Its error
// wraps one of the sentinels above.
func (id identity) dial(conn net.Conn, region string) (net.Conn, hello, error) {
	self := id.self
	self.To = region
	asked, err := self.encode()
	if err != nil {
		return nil, hello{}, err
	}
	secrets := id.keys(region)
	if len(secrets) == 0 {
		return nil, hello{}, fmt.Errorf("%w: this node has no secret of region %q", errSecret, region)
	}
	if err := id.names.prove(conn, region, ""); err != nil {
		return nil, hello{}, err
	}
	secured, err := id.dialProof(conn, secrets)
	if err != nil {
		return nil, hello{}, err
	}
	if err := tell(secured, appendHello(nil, asked)); err != nil {
		return nil, hello{}, err
	}
	status, answer, err := readStatus(secured)
	if err != nil && secured != conn && alerted(err) {
		return nil, hello{}, fmt.Errorf("%w: %v", errSecret, err) // with TLS 1.3, the refusal of a certificate follows the handshake
	}
	if err != nil {
		return nil, hello{}, unanswered(err)
	}
	if status == statusGarbage {
		return nil, hello{}, errForeign
	}
	peer, err := decodeHello(answer)
	if err != nil {
		return nil, hello{}, fmt.Errorf("%w: %v", errForeign, err)
	}
	if _, err := self.agree(peer); err != nil {
		return nil, peer, err
	}
	if err := judgeStatus(status); err != nil {
		return nil, peer, err
	}
	if err := self.misses(peer.Region); err != nil {
		return nil, peer, err
	}
	if err := id.names.prove(conn, peer.Region, peer.Name); err != nil {
		return nil, peer, err
	}
	if status == statusRegion {
		return nil, peer, errForeign // it refuses a hello that fits
	}
	return secured, peer, nil
}

// readStatus reads the listener's last part of the handshake.
func readStatus(r io.Reader) (status byte, hello []byte, err error) {
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, nil, err
	}
	hello, err = readHello(r)
	return b[0], hello, err
}

// judgeStatus returns the meaning of a status for the dialler, nil if its hello decides.
func judgeStatus(status byte) error {
	switch status {
	case statusSeed:
		return errSeed
	case statusLeft:
		return errAway
	case statusIdentity:
		return errUnproven
	case statusWelcome, statusRegion:
		return nil
	case statusVersion:
		return errForeign // it refuses versions that fit
	}
	return errRefused
}

// tell writes what a dialler says. That the other side has closed the connection is no
// error of it: the read that follows returns what that side said before it closed, such as
// an alert of TLS.
func tell(conn net.Conn, b []byte) error {
	_, err := conn.Write(b)
	if err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return fmt.Errorf("%w: %v", errSilent, err)
}

// readAnswer reads the answer of a listener to a proof, with more bytes after the key that it has
// selected.
func (h hello) readAnswer(conn net.Conn, more int) ([]byte, error) {
	answer := make([]byte, 2+more)
	if _, err := io.ReadFull(conn, answer[:1]); err != nil {
		if isHangUp(err) {
			return nil, errHungUp
		}
		return nil, unanswered(err)
	}
	if err := h.judgeOpening(answer[0]); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, answer[1:]); err != nil {
		return nil, unanswered(err)
	}
	if answer[1] == noKey {
		return nil, errSecret
	}
	return answer, nil
}

// judgeOpening returns why a listener that answers with this byte first does not speak this
// protocol, nil if it does.
func (h hello) judgeOpening(first byte) error {
	switch {
	case first == opening:
		return nil
	case first == tlsAlert:
		return errTLS
	case first < plausibleVersions:
		return h.apart(fmt.Sprint(first))
	}
	return errForeign
}

// plausibleVersions bounds what may be the opening of another version; a first byte
// above it is something else altogether.
const plausibleVersions = 16

// The first bytes of TLS records: what a side with TLS sends to one without.
const (
	tlsAlert     = 0x15
	tlsHandshake = 0x16
)

// accept is the listener's side, after the first byte and Config.TLS. It returns the connection
// that replaces conn. With an error, reason is what it counts under; none
// if the dialler just went away.
func (id identity) accept(conn net.Conn) (secured net.Conn, peer hello, reason string, err error) {
	proof, reason, err := id.self.readOpening(conn)
	if err != nil {
		return nil, hello{}, reason, err
	}
	secured, proven, reason, err := id.acceptProof(conn, proof)
	if err != nil {
		return nil, hello{}, reason, err
	}
	asked, err := readHello(secured)
	switch {
	case err != nil && secured != conn && alerted(err):
		return nil, hello{}, reasonAuthentication, fmt.Errorf("%w: %v", errSecret, err)
	case err != nil:
		return nil, hello{}, stopped(err), err
	}
	peer, err = decodeHello(asked)
	status := statusGarbage
	if reason = reasonGarbage; err == nil {
		status, reason, err = id.judge(peer, proven, conn)
	}
	answer, e := id.self.encode()
	if e != nil {
		return nil, hello{}, "", e
	}
	if _, e := secured.Write(appendHello([]byte{status}, answer)); e != nil && err == nil {
		return nil, hello{}, stopped(e), e
	}
	return secured, peer, reason, err
}

// judge returns whether a dialler may come in that has proven this on conn, and the reason and
// error of a refusal.
func (id identity) judge(peer hello, proven credential, conn net.Conn) (status byte, reason string, err error) {
	if err := id.proves(proven, conn, peer); err != nil {
		return statusIdentity, reasonIdentity, err
	}
	if _, err := id.self.agree(peer); err != nil {
		return statusVersion, reasonVersion, err
	}
	if peer.Seed != id.self.Seed {
		return statusSeed, reasonSeed, errSeed
	}
	if err := peer.misses(id.self.Region); err != nil {
		return statusRegion, reasonRegion, err
	}
	if peer.abroad() && id.left != nil && id.left.Load() {
		return statusLeft, "", detect.ErrLeft
	}
	return statusWelcome, "", nil
}

// openingSize is the size of a dialler's first bytes. A reader ignores the reserved ones. A
// listener with Config.TLS reads the header of a record before it refuses, so there are as many.
const openingSize = 2 + 8

// openWith returns the first bytes of a dialler that proves itself in this way.
func openWith(proof byte) []byte {
	b := make([]byte, openingSize, 64)
	b[0], b[1] = opening, proof
	return b
}

// readOpening reads the first bytes of a dialler, which state how it proves itself. A dialler that
// opens in another way is told this one.
func (h hello) readOpening(conn net.Conn) (proof byte, reason string, err error) {
	var first [openingSize]byte
	if _, err := io.ReadFull(conn, first[:1]); err != nil {
		return 0, stopped(err), err
	}
	switch v := first[0]; {
	case v == tlsHandshake:
		sendAlert(conn)
		return 0, reasonTLS, errTLS
	case v >= plausibleVersions:
		return 0, reasonGarbage, fmt.Errorf("%w: it starts with %#x", errGarbage, v)
	case v != opening:
		refuseProof(conn)
		return 0, reasonVersion, h.apart(fmt.Sprint(v))
	}
	if _, err := io.ReadFull(conn, first[1:]); err != nil {
		return 0, stopped(err), err
	}
	return first[1], "", nil
}

// unanswered returns what a failed read of the other's answer means.
func unanswered(err error) error {
	switch {
	case errors.Is(err, errOversized):
		return fmt.Errorf("%w: %v", errForeign, err)
	case alerted(err):
		return fmt.Errorf("%w: %v", errCertificate, err)
	}
	return fmt.Errorf("%w: %v", errSilent, err)
}

// stopped returns the reason that a failed read or write counts under.
func stopped(err error) string {
	var timeout net.Error
	switch {
	case alerted(err):
		return reasonTLS
	case errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	case errors.Is(err, errOversized):
		return reasonOversized
	}
	return ""
}

// alerted reports whether TLS was not agreed upon. With TLS 1.3 a client learns only
// when it reads that its certificate was not accepted.
func alerted(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	_, isRecord := errors.AsType[tls.RecordHeaderError](err)
	return isRecord || ok && (op.Op == "remote error" || op.Op == "local error")
}

// openStream dials addr, says with the first byte what the stream is for, and
// wraps it in TLS if t is not nil. ctx bounds all of it, and nothing after it.
func openStream(ctx context.Context, dial func(context.Context, string) (net.Conn, error), t *tls.Config, addr string, first byte) (net.Conn, error) {
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSilent, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = tell(conn, []byte{first})
	out := conn
	if err == nil && t != nil {
		secure := newTLSConn(conn, clientTLS(t, addr), tls.Client)
		if e := secure.performHandshake(ctx, maxCertificates); e != nil {
			err = fmt.Errorf("%w: %v", untrusted(e), e)
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
