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

// The first byte of every TCP stream between members states the purpose of the stream, and precedes the
// TLS handshake, if there is TLS. No HTTP request and no TLS record begins with these bytes.
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
// The hellos state the versions and capabilities that each side speaks. The connection speaks the
// newest common version (hello.agree). A reader ignores unknown fields of a hello, and bytes after the
// hello.
//
// With secrets, each side sends its hello under TLS, after the other side has proved a common secret.
// So a node without a common secret does not learn names or addresses. If only one side has secrets,
// the listener refuses the dialler.
//
// An attacker can pass all bytes on unchanged, to a different member or back to the port of the
// dialler. Then two nodes that both hold the secret perform the handshake. Each node learns the
// identity of the other, and the dialler closes the connection if it meant to reach a different node.
const (
	maxHello = 1 << 10
	// handshakeWait is how long a handshake may take.
	handshakeWait = 2 * time.Second
)

// The status is the listener's answer to a hello.
const (
	statusWelcome byte = iota
	statusSeed
	statusRegion
	statusLeft
	statusIdentity // the dialler does not prove its name or region
	statusGarbage
	statusVersion // no common version
)

// The reasons why a connection is refused or cannot be opened, with the remedy. Two more are in
// credentials.go.
var (
	errVersion = errors.New("cluster: the member speaks another version of the peer protocol: upgrade one release at a time, as each release speaks its own version and the previous one")
	errSecret  = errors.New("cluster: the member and this node share no secret: give all nodes at least one common secret in Secrets")
	errSeed    = gossip.ErrSeed
	errRegion  = gossip.ErrRegion
	errAstray  = errors.New("cluster: an address in Regions leads to the wrong region: give addresses of nodes in the region that they are listed for")
	errTLS     = errors.New("cluster: no TLS connection: set TLS on all nodes or on none, with certificates that all nodes accept")
	// errCertificate is errTLS if both sides have TLS.
	errCertificate = fmt.Errorf("%w: the member and this node do not trust each other's certificates, so add the CA of each to the roots of the other", errTLS)

	errAway    = errors.New("cluster: the node at the address has left its region: give addresses that lead to other nodes, too")
	errName    = errors.New("cluster: another member answers at the address")
	errSelf    = errors.New("cluster: the address that a member advertises leads back to this node: if that member has ended and this node uses its address now, do nothing; otherwise set Advertise on that member to an address that other machines dial")
	errShared  = errors.New("cluster: two members advertise one address: set Advertise on each to an address that leads to it alone")
	errSilent  = errors.New("cluster: no answer at the address: check that it is right, that a node listens there, and that no firewall is between")
	errHungUp  = errors.New("cluster: the server at the address closed the connection without an answer: it may have ended or be starting, or have too many connections")
	errForeign = errors.New("cluster: the server at the address is not a member: check the address and its port")
	errRefused = errors.New("cluster: the member refuses this node for a reason that this release does not know: see the member's log")
)

// hello is the identity of a node, as the node states it. A dialler that wants to reach its own region
// is a member. A dialler that wants to reach another region may only send requests and pings. The codec
// keys of a hello keep their meaning in all versions.
type hello struct {
	Name   string   `codec:"n"`
	Addr   string   `codec:"a"`
	Region string   `codec:"r"`
	Seed   [16]byte `codec:"s"` // fingerprint of the key of the id hash
	To     string   `codec:"t"` // the region that a dialler wants to reach

	// The versions and capabilities of the node.
	Oldest       uint8  `codec:"o,omitempty"`
	Newest       uint8  `codec:"v,omitempty"`
	Capabilities uint64 `codec:"c,omitempty"`
}

// isAbroad reports whether the node wants to reach a region other than its own.
func (h hello) isAbroad() bool { return h.Region != h.To }

// checkRegion returns why the hello of a dialler does not fit a listener of the given region, or nil if
// it fits. There is no connection between a node without a Region and a different region.
func (h hello) checkRegion(region string) error {
	switch {
	case !h.isAbroad() && h.Region != region:
		return fmt.Errorf("%w: a node of region %q asked to join a node of region %q", errRegion, h.Region, region)
	case h.To != region || h.isAbroad() && (h.Region == "" || region == ""):
		return fmt.Errorf("%w: a node of region %q expected a node of region %q at the address, and found a node of region %q", errAstray, h.Region, h.To, region)
	}
	return nil
}

func (h hello) encode() ([]byte, error) {
	b := gossip.Encode(h)
	if len(b) > maxHello {
		return nil, fmt.Errorf("cluster: Name, Advertise and Region take %d bytes in a handshake, and the maximum is %d: shorten them", len(b), maxHello)
	}
	return b, nil
}

func decodeHello(b []byte) (h hello, err error) {
	if err := gossip.Decode(b, &h); err != nil {
		return hello{}, fmt.Errorf("%w: %v", errGarbage, err)
	}
	if h.Name == "" {
		return hello{}, fmt.Errorf("%w: a hello has no name", errGarbage)
	}
	if len(h.Region) > detect.MaxRegion || len(h.To) > detect.MaxRegion {
		return hello{}, fmt.Errorf("%w: a hello has a region with a name of more than %d bytes", errGarbage, detect.MaxRegion)
	}
	if h.Oldest > h.Newest {
		return hello{}, fmt.Errorf("%w: a hello has versions from %d to %d", errGarbage, h.Oldest, h.Newest)
	}
	return h, nil
}

// identity has the hello and the credentials of a node. With them, the node proves itself and
// verifies the proofs of other nodes.
type identity struct {
	self    hello
	secrets [][]byte
	regions map[string][][]byte // Config.RegionSecrets; if nil, other regions have the same secrets
	names   certificateNames
	left    *atomic.Bool       // whether the node has left, and so refuses nodes of other regions; nil if it never leaves
	pairs   map[string]keyPair // the key pairs by secret; without an entry, the key pair is derived for each connection
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
		return nil, fmt.Errorf("%w: a hello has %d bytes, and the maximum is %d", errOversized, n, maxHello)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// dial performs the dialler's side of the handshake, after the first byte and Config.TLS, to reach a
// node of region. It returns the connection that replaces conn. The error wraps an error variable of
// this file or of credentials.go, unless the hello of this node is too long.
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
	if err := id.names.checkCertificate(conn, region, ""); err != nil {
		return nil, hello{}, err
	}
	secured, err := id.dialProof(conn, secrets)
	if err != nil {
		return nil, hello{}, err
	}
	if err := writeToListener(secured, appendHello(nil, asked)); err != nil {
		return nil, hello{}, err
	}
	status, answer, err := readStatus(secured)
	if err != nil && secured != conn && isTLSError(err) {
		return nil, hello{}, fmt.Errorf("%w: %v", errSecret, err) // with TLS 1.3, the refusal of a certificate arrives after the handshake
	}
	if err != nil {
		return nil, hello{}, answerError(err)
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
	if err := self.checkRegion(peer.Region); err != nil {
		return nil, peer, err
	}
	if err := id.names.checkCertificate(conn, peer.Region, peer.Name); err != nil {
		return nil, peer, err
	}
	if status == statusRegion {
		return nil, peer, errForeign // the hello fits, so no member refuses it
	}
	return secured, peer, nil
}

// readStatus reads the last part of a handshake from a listener: a status and a hello.
func readStatus(r io.Reader) (status byte, hello []byte, err error) {
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, nil, err
	}
	hello, err = readHello(r)
	return b[0], hello, err
}

// judgeStatus returns the meaning of a status for the dialler, or nil if the listener's hello decides.
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
		return errForeign // the versions fit, so no member refuses them
	}
	return errRefused
}

// writeToListener writes bytes of a dialler. No error is returned if the listener has closed the
// connection, because the next read returns the bytes that the listener has sent before, such as an
// alert of TLS.
func writeToListener(conn net.Conn, b []byte) error {
	_, err := conn.Write(b)
	if err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return fmt.Errorf("%w: %v", errSilent, err)
}

// readAnswer reads the answer of a listener to a proof: the opening, the selected key, and the given
// number of further bytes.
func (h hello) readAnswer(conn net.Conn, more int) ([]byte, error) {
	answer := make([]byte, 2+more)
	if _, err := io.ReadFull(conn, answer[:1]); err != nil {
		if closedByPeer(err) {
			return nil, errHungUp
		}
		return nil, answerError(err)
	}
	if err := h.judgeOpening(answer[0]); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, answer[1:]); err != nil {
		return nil, answerError(err)
	}
	if answer[1] == noKey {
		return nil, errSecret
	}
	return answer, nil
}

// judgeOpening returns why a listener whose answer begins with the given byte does not speak this
// protocol, or nil if the byte is valid.
func (h hello) judgeOpening(first byte) error {
	switch {
	case first == opening:
		return nil
	case first == tlsAlert:
		return errTLS
	case first < plausibleVersions:
		return h.versionError(fmt.Sprint(first))
	}
	return errForeign
}

// plausibleVersions bounds the openings of other versions. A first byte of plausibleVersions or more
// belongs to a different protocol.
const plausibleVersions = 16

// The first bytes of TLS records, which a side with TLS sends to a side without TLS.
const (
	tlsAlert     = 0x15
	tlsHandshake = 0x16
)

// accept performs the listener's side of the handshake, after the first byte and Config.TLS. The result
// secured replaces conn. With an error, reason is the reason in Stats.Refused, and "" if the dialler just
// closed the connection, or if this node has left.
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
	case err != nil && secured != conn && isTLSError(err):
		return nil, hello{}, reasonAuthentication, fmt.Errorf("%w: %v", errSecret, err)
	case err != nil:
		return nil, hello{}, refusalReason(err), err
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
		return nil, hello{}, refusalReason(e), e
	}
	return secured, peer, reason, err
}

// judge returns the status for a dialler that has proven a credential on conn, and the reason and
// the error of a refusal.
func (id identity) judge(peer hello, proven credential, conn net.Conn) (status byte, reason string, err error) {
	if err := id.checkProof(proven, conn, peer); err != nil {
		return statusIdentity, reasonIdentity, err
	}
	if _, err := id.self.agree(peer); err != nil {
		return statusVersion, reasonVersion, err
	}
	if peer.Seed != id.self.Seed {
		return statusSeed, reasonSeed, errSeed
	}
	if err := peer.checkRegion(id.self.Region); err != nil {
		return statusRegion, reasonRegion, err
	}
	if peer.isAbroad() && id.left != nil && id.left.Load() {
		return statusLeft, "", detect.ErrLeft
	}
	return statusWelcome, "", nil
}

// openingSize is the size of the first bytes of a dialler. Eight bytes are reserved, and a reader
// ignores them. They make the opening longer than the header of a TLS record, which a listener with
// Config.TLS reads before it refuses.
const openingSize = 2 + 8

// openWith returns the first bytes of a dialler that uses the given way of proof.
func openWith(proof byte) []byte {
	b := make([]byte, openingSize, 64)
	b[0], b[1] = opening, proof
	return b
}

// readOpening reads the first bytes of a dialler, which state the way of proof. A dialler that begins
// with TLS receives an alert, and a dialler of a different version receives the opening of this
// version.
func (h hello) readOpening(conn net.Conn) (proof byte, reason string, err error) {
	var first [openingSize]byte
	if _, err := io.ReadFull(conn, first[:1]); err != nil {
		return 0, refusalReason(err), err
	}
	switch v := first[0]; {
	case v == tlsHandshake:
		sendAlert(conn)
		return 0, reasonTLS, errTLS
	case v >= plausibleVersions:
		return 0, reasonGarbage, fmt.Errorf("%w: the handshake starts with %#x", errGarbage, v)
	case v != opening:
		refuseProof(conn)
		return 0, reasonVersion, h.versionError(fmt.Sprint(v))
	}
	if _, err := io.ReadFull(conn, first[1:]); err != nil {
		return 0, refusalReason(err), err
	}
	return first[1], "", nil
}

// answerError returns the meaning of a failed read of the other side's answer.
func answerError(err error) error {
	switch {
	case errors.Is(err, errOversized):
		return fmt.Errorf("%w: %v", errForeign, err)
	case isTLSError(err):
		return fmt.Errorf("%w: %v", errCertificate, err)
	}
	return fmt.Errorf("%w: %v", errSilent, err)
}

// refusalReason returns the reason under which a failed read or write is counted.
func refusalReason(err error) string {
	var timeout net.Error
	switch {
	case isTLSError(err):
		return reasonTLS
	case errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	case errors.Is(err, errOversized):
		return reasonOversized
	}
	return ""
}

// isTLSError reports whether an error is from TLS: an alert, or bytes that are not a record. With TLS
// 1.3, a client learns only from a read that its certificate was refused.
func isTLSError(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	_, isRecord := errors.AsType[tls.RecordHeaderError](err)
	return isRecord || ok && (op.Op == "remote error" || op.Op == "local error")
}

// openStream dials addr, sends the first byte, which states the purpose of the stream, and
// performs the TLS handshake if t is not nil. ctx bounds openStream only.
func openStream(ctx context.Context, dial func(context.Context, string) (net.Conn, error), t *tls.Config, addr string, first byte) (net.Conn, error) {
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSilent, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = writeToListener(conn, []byte{first})
	out := conn
	if err == nil && t != nil {
		secure := newTLSConn(conn, clientTLS(t, addr), tls.Client)
		if e := secure.performHandshake(ctx, maxCertificates); e != nil {
			err = fmt.Errorf("%w: %v", dialTLSError(e), e)
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
