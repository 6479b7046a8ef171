package cluster

import (
	"bytes"
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
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip"
	"github.com/weir-go/weir/internal/sealed"
)

// The first byte of every TCP stream between members says what the stream is
// for. It comes before the TLS handshake, if there is TLS, and starts neither
// an HTTP request nor a TLS record.
const (
	firstByteCheck  = 0xC7
	firstByteGossip = 0xC8
)

// The handshake on a connection for checks, after the first byte and TLS:
//
//	dialler  → opening 1 | nonce 16 | count 1 | that many key ids of 8
//	listener → opening 1 | nonce 16 | which 1 | proof 32
//	dialler  → length 2 | hello | MAC 32
//	listener → status 1 | length 2 | hello | MAC 32
//
// The hellos state the versions and capabilities that each side speaks. The connection
// speaks the newest common version (hello.agree). A reader ignores fields of a hello that
// it does not know, and bytes after it. The MACs cover all of a hello, so an attacker
// that changes versions or capabilities, to have an older form used, ends the connection.
//
// The key ids stand for the secrets that the dialler accepts on this connection, the
// one that it prefers first; a key id is of one handshake and says nothing of its
// secret (keyID). The listener takes the first of them that it accepts too, says
// which, and proves that it holds it: the proof is a MAC over all that both have said
// until then, both nonces among it. So two nodes in adjacent stages of a rotation
// always have a secret in common, whichever of them dials; and an attacker that
// removes key ids, to have an older secret used, makes the proof a wrong one. A
// listener that accepts none of them says so (noKey, and zeros for a proof) and closes.
//
// The dialler says nothing of itself until it has seen that proof, and the listener
// nothing until it has seen the dialler's: a MAC over all that was said, the hello
// included, under a key of the same secret. The label of each MAC differs, so that
// none serves in another's place, nor when it is sent back to the node that made it.
// With secrets and without TLS the two hellos, and all frames after them, travel in
// records under keys of that secret and of all that was said in the clear: see sealed.
//
// Without secrets the key is of an empty one: a side without secrets is refused by
// a side with some, and nothing is sealed. A listener that could not authenticate
// the dialler closes without a word.
//
// An attacker that passes everything on unchanged, to another member or back to the
// dialler's own port, has two nodes shake hands that both hold the secret: each
// learns which node the other is, and a dialler leaves one that it did not want.
// There is no forward secrecy: a secret that leaks opens what was recorded under it.
// TLS has that. Under TLS each secret is bound to the connection, see identity.on, as
// nothing is sealed then: what is passed on over another connection proves nothing.
const (
	nonceSize = 16
	macSize   = sha256.Size
	maxHello  = 1 << 10
	// maxSecrets bounds the secrets that a connection may be under, and so what a
	// dialler that holds none makes a listener compute.
	maxSecrets = 16
	noKey      = 0xFF
	// handshakeWait is how long a handshake may take.
	handshakeWait = 2 * time.Second

	proofLabel  = "weir check proof"
	dialLabel   = "weir check dial"
	answerLabel = "weir check answer"
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
	covered bool         // TLS covers all connections: nothing is sealed
	left    *atomic.Bool // the node is no member any more, and refuses other regions; nil: it is
}

// secure seals what follows on conn, if it is to be sealed. said is all that both
// have said until now.
func (id identity) secure(conn net.Conn, secret, said []byte, dialled bool) net.Conn {
	if len(secret) == 0 || id.covered {
		return conn
	}
	return seal(conn, secret, said, dialled)
}

// over is called when the handshake on conn is over, and good.
func over(conn net.Conn) {
	if s, ok := conn.(*sealedConn); ok {
		s.shaken()
	}
}

// sign is the MAC of the parts, each with its length, so that no two lists of
// parts are signed alike.
func sign(secret []byte, label string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, sealed.Derive(secret, nil, macLabel))
	m.Write([]byte(label))
	var size [4]byte
	for _, p := range parts {
		binary.BigEndian.PutUint32(size[:], uint32(len(p)))
		m.Write(size[:])
		m.Write(p)
	}
	return m.Sum(nil)
}

const greetingSize = 1 + nonceSize

func greeting() []byte {
	b := make([]byte, greetingSize, 128)
	b[0] = opening
	rand.Read(b[1:])
	return b
}

// offer is a greeting with the key ids of secrets.
func offer(secrets [][]byte) []byte {
	b := greeting()
	nonce := b[1:]
	b = append(b, byte(len(secrets)))
	for _, secret := range secrets {
		id := keyIDOf(secret, nonce)
		b = append(b, id[:]...)
	}
	return b
}

// accepts finds the first key id of an offer that stands for one of credentials.
func accepts(offer []byte, credentials []credential) (which byte, c credential, ok bool) {
	nonce, ids := offer[1:greetingSize], offer[greetingSize+1:]
	own := make([]keyID, len(credentials))
	for i, c := range credentials {
		own[i] = keyIDOf(c.secret, nonce)
	}
	for which = 0; len(ids) > 0; which, ids = which+1, ids[keyIDSize:] {
		for i := range own {
			if hmac.Equal(own[i][:], ids[:keyIDSize]) {
				return which, credentials[i], true
			}
		}
	}
	return noKey, credential{}, false
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
// node of region. It returns what is to be used in the place of conn. Its error
// wraps one of the sentinels above.
func (id identity) dial(conn net.Conn, region string) (net.Conn, hello, error) {
	self := id.self
	self.To = region
	asked, err := self.encode()
	if err != nil {
		return nil, hello{}, err
	}
	keys := id.keys(region)
	if len(keys) == 0 {
		return nil, hello{}, fmt.Errorf("%w: this node has no secret of region %q", errSecret, region)
	}
	if err := id.names.prove(conn, region, ""); err != nil {
		return nil, hello{}, err
	}
	mine := offer(keys)
	if err := tell(conn, mine); err != nil {
		return nil, hello{}, err
	}
	theirs, err := self.readProof(conn)
	if err != nil {
		return nil, hello{}, err
	}
	which, proof := theirs[greetingSize], theirs[greetingSize+1:]
	theirs = theirs[:greetingSize+1]
	if int(which) >= len(keys) || !hmac.Equal(proof, sign(keys[which], proofLabel, mine, theirs)) {
		return nil, hello{}, errSecret
	}
	key, plain := keys[which], conn
	conn = id.secure(conn, key, slices.Concat(mine, theirs), true)
	if err := tell(conn, appendHello(nil, asked, sign(key, dialLabel, mine, theirs, asked))); err != nil {
		return nil, hello{}, err
	}
	var status [1]byte
	if _, err := io.ReadFull(conn, status[:]); err != nil {
		return nil, hello{}, unanswered(err)
	}
	answer, mac, err := readHello(conn)
	if err != nil {
		return nil, hello{}, unanswered(err)
	}
	if status[0] == statusGarbage {
		return nil, hello{}, errForeign
	}
	if !hmac.Equal(mac, sign(key, answerLabel, mine, theirs, asked, status[:], answer)) {
		return nil, hello{}, errSecret
	}
	peer, err := decodeHello(answer)
	if err != nil {
		return nil, hello{}, fmt.Errorf("%w: %v", errForeign, err)
	}
	if _, err := self.agree(peer); err != nil {
		return nil, peer, err
	}
	switch status[0] {
	case statusSeed:
		return nil, peer, errSeed
	case statusLeft:
		return nil, peer, errAway
	case statusIdentity:
		return nil, peer, errUnproven
	case statusWelcome, statusRegion:
	case statusVersion:
		return nil, hello{}, errForeign // it refuses what fits
	default:
		return nil, peer, errRefused
	}
	if err := self.misses(peer.Region); err != nil {
		return nil, peer, err
	}
	if err := id.names.prove(plain, peer.Region, peer.Name); err != nil {
		return nil, peer, err
	}
	if status[0] == statusRegion {
		return nil, peer, errForeign // it refuses what fits
	}
	over(conn)
	return conn, peer, nil
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

// readProof reads what a listener says first.
func (h hello) readProof(conn net.Conn) ([]byte, error) {
	theirs := make([]byte, greetingSize+1+macSize)
	if _, err := io.ReadFull(conn, theirs[:1]); err != nil {
		if isHangUp(err) {
			return nil, errHungUp
		}
		return nil, unanswered(err)
	}
	switch v := theirs[0]; {
	case v == opening:
	case v == tlsAlert:
		return nil, errTLS
	case v < plausibleVersions:
		return nil, h.apart(fmt.Sprint(v))
	default:
		return nil, errForeign
	}
	if _, err := io.ReadFull(conn, theirs[1:]); err != nil {
		return nil, unanswered(err)
	}
	return theirs, nil
}

// plausibleVersions bounds what may be the opening of another version; a first byte
// above it is something else altogether.
const plausibleVersions = 16

// The first bytes of TLS records: what a side with TLS sends to one without.
const (
	tlsAlert     = 0x15
	tlsHandshake = 0x16
)

// accept is the listener's side, after the first byte and TLS. It returns what is to
// be used in the place of conn. With an error, reason is what it counts under; none
// if the dialler just went away.
func (id identity) accept(conn net.Conn) (secured net.Conn, peer hello, reason string, err error) {
	theirs, reason, err := id.self.readOffer(conn)
	if err != nil {
		return nil, hello{}, reason, err
	}
	which, proven, known := accepts(theirs, id.credentials())
	key, plain := proven.secret, conn
	mine := append(greeting(), which)
	proof := make([]byte, macSize)
	if known {
		proof = sign(key, proofLabel, theirs, mine)
	}
	if _, err := conn.Write(append(bytes.Clone(mine), proof...)); err != nil {
		return nil, hello{}, stopped(err), err
	}
	if !known {
		return nil, hello{}, reasonAuthentication, errSecret
	}
	conn = id.secure(conn, key, slices.Concat(theirs, mine), false)
	asked, mac, err := readHello(conn)
	switch {
	case errors.Is(err, errRecord):
		return nil, hello{}, reasonAuthentication, err
	case errors.Is(err, errOversized):
		return nil, hello{}, reasonOversized, err
	case err != nil:
		return nil, hello{}, stopped(err), err
	case !hmac.Equal(mac, sign(key, dialLabel, theirs, mine, asked)):
		return nil, hello{}, reasonAuthentication, errSecret
	}
	status := statusWelcome
	peer, err = decodeHello(asked)
	unproven := id.proves(proven, plain, peer)
	_, apart := id.self.agree(peer)
	switch {
	case err != nil:
		status, reason = statusGarbage, reasonGarbage
	case unproven != nil:
		status, reason, err = statusIdentity, reasonIdentity, unproven
	case apart != nil:
		status, reason, err = statusVersion, reasonVersion, apart
	case peer.Seed != id.self.Seed:
		status, reason, err = statusSeed, reasonSeed, errSeed
	default:
		if err = peer.misses(id.self.Region); err != nil {
			status, reason = statusRegion, reasonRegion
		} else if peer.abroad() && id.left != nil && id.left.Load() {
			status, err = statusLeft, detect.ErrLeft
		}
	}
	answer, e := id.self.encode()
	if e != nil {
		return nil, hello{}, "", e
	}
	mac = sign(key, answerLabel, theirs, mine, asked, []byte{status}, answer)
	if _, e := conn.Write(appendHello([]byte{status}, answer, mac)); e != nil && err == nil {
		return nil, hello{}, stopped(e), e
	}
	over(conn)
	return conn, peer, reason, err
}

// readOffer reads what a dialler says first. One that opens in another way is told this
// one.
func (h hello) readOffer(conn net.Conn) (offer []byte, reason string, err error) {
	offer = make([]byte, greetingSize+1, greetingSize+1+maxSecrets*keyIDSize)
	if _, err := io.ReadFull(conn, offer[:1]); err != nil {
		return nil, stopped(err), err
	}
	switch v := offer[0]; {
	case v == tlsHandshake:
		sendAlert(conn)
		return nil, reasonTLS, errTLS
	case v >= plausibleVersions:
		return nil, reasonGarbage, fmt.Errorf("%w: it starts with %#x", errGarbage, v)
	case v != opening:
		conn.Write(greeting())
		return nil, reasonVersion, h.apart(fmt.Sprint(v))
	}
	if _, err := io.ReadFull(conn, offer[1:]); err != nil {
		return nil, stopped(err), err
	}
	count := int(offer[greetingSize])
	if count == 0 || count > maxSecrets {
		return nil, reasonGarbage, fmt.Errorf("%w: it offers %d keys, not 1 to %d", errGarbage, count, maxSecrets)
	}
	offer = offer[:len(offer)+count*keyIDSize]
	if _, err := io.ReadFull(conn, offer[greetingSize+1:]); err != nil {
		return nil, stopped(err), err
	}
	return offer, "", nil
}

// unanswered returns what a failed read of the other's answer means.
func unanswered(err error) error {
	switch {
	case errors.Is(err, errOversized), errors.Is(err, errRecord):
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
	}
	return ""
}

// alerted reports whether TLS was not agreed upon. With TLS 1.3 a client learns only
// when it reads that its certificate was not accepted.
func alerted(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "remote error" || op.Op == "local error")
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
		secure := tls.Client(conn, clientTLS(t, addr))
		if e := secure.HandshakeContext(ctx); e != nil {
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
