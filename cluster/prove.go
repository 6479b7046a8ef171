package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/weir-go/weir/internal/sealed"
)

// The ways in which both sides of a connection prove that they hold a common secret. The dialler
// states its way.
const (
	proofNone   byte = iota // the node has no secrets
	proofKeys               // TLS 1.3 follows, with the key pair of the secret on both sides
	proofTokens             // tokens follow, which are bound to the connection under Config.TLS
)

// With proofKeys, the dialler's ClientHello offers protocols of ALPN: a nonce, and then the key ids of the
// secrets that the dialler accepts, the preferred secret first. HKDF derives a key id from the secret and
// the nonce, so an eavesdropper does not see which connections use one secret. The listener selects the
// first key id of a secret that it accepts too. Both sides then present the certificate of this secret,
// and compare the public key of the other side with their own. So two nodes in adjacent stages of a
// rotation always have a secret in common, whichever of them dials. If an attacker removes key ids, so
// that an older secret is used, the handshake fails because its bytes have changed. TLS does not
// protect the bytes before it, so the sides must not negotiate by these bytes.
//
// A listener that does not accept any of the key ids refuses the dialler before it uses a private key.
// Tokens under TLS without certificates would need less code, but then a listener would spend 20 times
// as much time on each stranger.
//
// Each connection has new keys, so that a leaked secret cannot be used to decrypt recorded connections.

const (
	nonceSize  = 16
	maxSecrets = 16 // the maximum number that a dialler offers
	noKey      = 0xFF
	tokenSize  = 32
	// maxHandshake bounds the bytes that TLS reads in a handshake by key pairs.
	maxHandshake = 16 << 10
)

// keysConfig returns the part of the TLS configuration that is the same for both sides.
func keysConfig() *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		ClientAuth:                  tls.RequireAnyClientCert,
		InsecureSkipVerify:          true, // VerifyConnection compares the public key instead
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
}

// dialProof proves one of secrets to a listener, and verifies the proof of the listener. The result
// replaces conn.
func (id identity) dialProof(conn net.Conn, secrets [][]byte) (net.Conn, error) {
	covered, ok := conn.(*tlsConn)
	switch {
	case len(secrets[0]) == 0:
		if err := writeToListener(conn, openWith(proofNone)); err != nil {
			return nil, err
		}
		_, err := id.self.readAnswer(conn, 0)
		return conn, err
	case ok:
		return covered, id.dialTokens(covered, secrets)
	}
	return id.dialKeys(conn, secrets)
}

// acceptProof is the listener's side of dialProof. The results include the credential that the dialler
// has proven, or the reason under which the refusal is counted.
func (id identity) acceptProof(conn net.Conn, proof byte) (net.Conn, credential, string, error) {
	covered, ok := conn.(*tlsConn)
	switch {
	case proof == proofTokens && ok:
		proven, reason, err := id.acceptTokens(covered)
		return conn, proven, reason, err
	case proof == proofKeys && !ok: // without secrets, acceptKeys refuses after it has read the offer
		return id.acceptKeys(conn)
	case proof != proofNone:
		return nil, credential{}, reasonGarbage, fmt.Errorf("%w: this connection does not support a proof of kind %d", errGarbage, proof)
	case len(id.secrets) > 0:
		refuseProof(conn)
		return nil, credential{}, reasonAuthentication, errSecret
	}
	_, err := conn.Write([]byte{opening, 0})
	return conn, credential{anyRegion: true}, refusalReason(err), err // without Secrets, Config has no RegionSecrets
}

// refuseProof answers a dialler that it shares no secret with this node. The caller closes conn, so an
// error has no effect. The answer is longer than the header of a record, which a dialler that expects
// TLS waits for.
func refuseProof(conn net.Conn) {
	_, _ = conn.Write(append([]byte{opening, noKey}, make([]byte, tokenSize)...))
}

// offerKeys returns a nonce and the key ids of secrets, as protocols of ALPN.
func offerKeys(secrets [][]byte) []string {
	nonce := make([]byte, nonceSize)
	rand.Read(nonce)
	offer := []string{string(nonce)}
	for _, id := range deriveAll(secrets, nonce, keyIDLabel) {
		offer = append(offer, string(id))
	}
	return offer
}

// selectSecret returns the index of the first offered key that id also derives from an accepted secret,
// and the credential with that secret.
func (id identity) selectSecret(offered [][]byte, salt []byte, label string) (which int, by credential, err error) {
	accepted := id.credentials()
	own := make([][]byte, len(accepted))
	for i, c := range accepted {
		own[i] = sealed.Derive(c.secret, salt, label)
	}
	for which, key := range offered {
		if i := slices.IndexFunc(own, func(k []byte) bool { return hmac.Equal(k, key) }); i >= 0 {
			return which, accepted[i], nil
		}
	}
	return 0, credential{}, errSecret
}

// dialKeys is the dialler's side of TLS by key pairs.
func (id identity) dialKeys(conn net.Conn, secrets [][]byte) (net.Conn, error) {
	if err := writeToListener(conn, openWith(proofKeys)); err != nil {
		return nil, err
	}
	c, selected := keysConfig(), keyPair{}
	c.NextProtos = offerKeys(secrets)
	c.VerifyConnection = func(s tls.ConnectionState) error {
		which := slices.Index(c.NextProtos[1:], s.NegotiatedProtocol)
		if which < 0 {
			return errSecret
		}
		selected = id.keyPair(secrets[which])
		return selected.verify(s)
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // after VerifyConnection
		return &selected.certificate, nil
	}
	secured := newTLSConn(conn, c, tls.Client)
	if err := secured.performHandshake(context.Background(), maxHandshake); err != nil { // the deadline of conn bounds the handshake
		if secured.records.first == 0 && closedByPeer(err) {
			_ = secured.records.fill() // a write may fail before the answer is read
		}
		return nil, id.self.keysError(err, secured.records.first-1)
	}
	return secured, nil
}

// keysError returns the meaning of a failed handshake by key pairs for the dialler. The argument first is
// the first byte of the answer, or -1 without an answer.
func (h hello) keysError(err error, first int) error {
	switch {
	case first < 0 && closedByPeer(err):
		return errHungUp
	case first < 0:
		return fmt.Errorf("%w: %v", errSilent, err)
	}
	if opened := h.judgeOpening(byte(first)); opened != nil && first != tlsHandshake {
		return opened
	}
	if first == tlsHandshake && closedByPeer(err) || refusalReason(err) == reasonTimeout || errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%w: %v", errSilent, err)
	}
	return fmt.Errorf("%w: %v", errSecret, err)
}

// acceptKeys is the listener's side of TLS by key pairs.
func (id identity) acceptKeys(conn net.Conn) (net.Conn, credential, string, error) {
	var proven credential
	c := keysConfig()
	c.GetConfigForClient = func(offer *tls.ClientHelloInfo) (*tls.Config, error) {
		protocols := offer.SupportedProtos
		if len(protocols) < 2 || len(protocols) > 1+maxSecrets || len(protocols[0]) != nonceSize {
			return nil, fmt.Errorf("%w: the dialler does not offer 1 to %d keys", errGarbage, maxSecrets)
		}
		var ids [][]byte
		for _, protocol := range protocols[1:] {
			ids = append(ids, []byte(protocol))
		}
		which, by, err := id.selectSecret(ids, []byte(protocols[0]), keyIDLabel)
		if err != nil {
			refuseProof(conn)
			return nil, err
		}
		chosen, pair := keysConfig(), id.keyPair(by.secret)
		chosen.NextProtos = []string{string(ids[which])}
		chosen.Certificates = []tls.Certificate{pair.certificate}
		chosen.VerifyConnection = pair.verify
		proven = by
		return chosen, nil
	}
	secured := newTLSConn(conn, c, tls.Server)
	err := secured.performHandshake(context.Background(), maxHandshake)
	_, unlike := errors.AsType[tls.RecordHeaderError](err)
	switch reason := refusalReason(err); {
	case err == nil:
		return secured, proven, "", nil
	case errors.Is(err, errGarbage):
		return nil, credential{}, reasonGarbage, err
	case unlike:
		return nil, credential{}, reasonGarbage, fmt.Errorf("%w: %v", errGarbage, err)
	case closedByPeer(err), errors.Is(err, net.ErrClosed), reason == reasonTimeout, reason == reasonOversized:
		return nil, credential{}, reason, err
	case errors.Is(err, errSecret):
		return nil, credential{}, reasonAuthentication, err
	}
	return nil, credential{}, reasonAuthentication, fmt.Errorf("%w: %v", errSecret, err)
}

// keyPair returns the key pair of a secret.
func (id identity) keyPair(secret []byte) keyPair {
	if pair, ok := id.pairs[string(secret)]; ok {
		return pair
	}
	return newKeyPair(secret)
}

// keyPairs returns the key pairs of all secrets of id.
func (id identity) keyPairs() map[string]keyPair {
	pairs := make(map[string]keyPair)
	for _, c := range id.credentials() {
		pairs[string(c.secret)] = newKeyPair(c.secret)
	}
	return pairs
}

// With proofTokens, each side proves a secret by a token. HKDF derives the token from the secret and
// from the exporter of the TLS connection (RFC 9266):
//
//	dialler  → opening 1 | proof 1 | reserved 8 | count 1 | that many tokens of 32, the preferred one first
//	listener → opening 1 | which 1 | token 32
//
// An attacker that ends TLS between two members, with a certificate that both trust, and passes on
// their messages, has a different exporter on each side, for which no token is valid. The labels of
// both sides differ, so that the token of the dialler is no valid answer. If no token is accepted, the
// listener answers with noKey and zeros.

// dialTokens is the dialler's side of a proof by tokens.
func (id identity) dialTokens(conn *tlsConn, secrets [][]byte) error {
	exported, err := exporterOf(conn)
	if err != nil {
		return err
	}
	offer := append(openWith(proofTokens), byte(len(secrets)))
	for _, token := range deriveAll(secrets, exported, dialTokenLabel) {
		offer = append(offer, token...)
	}
	if err := writeToListener(conn, offer); err != nil {
		return err
	}
	answer, err := id.self.readAnswer(conn, tokenSize)
	if err != nil {
		return err
	}
	which, token := int(answer[1]), answer[2:]
	if which >= len(secrets) || !hmac.Equal(token, sealed.Derive(secrets[which], exported, acceptTokenLabel)) {
		return errSecret
	}
	return nil
}

// acceptTokens is the listener's side of a proof by tokens.
func (id identity) acceptTokens(conn *tlsConn) (proven credential, reason string, err error) {
	exported, err := exporterOf(conn)
	if err != nil {
		return credential{}, reasonTLS, err
	}
	var count [1]byte
	if _, err := io.ReadFull(conn, count[:]); err != nil {
		return credential{}, refusalReason(err), err
	}
	if count[0] == 0 || count[0] > maxSecrets {
		return credential{}, reasonGarbage, fmt.Errorf("%w: the dialler offers %d tokens, instead of 1 to %d", errGarbage, count[0], maxSecrets)
	}
	tokens := make([]byte, int(count[0])*tokenSize)
	if _, err := io.ReadFull(conn, tokens); err != nil {
		return credential{}, refusalReason(err), err
	}
	which, proven, err := id.selectSecret(slices.Collect(slices.Chunk(tokens, tokenSize)), exported, dialTokenLabel)
	if err != nil {
		refuseProof(conn)
		return credential{}, reasonAuthentication, err
	}
	token := sealed.Derive(proven.secret, exported, acceptTokenLabel)
	if _, err := conn.Write(append([]byte{opening, byte(which)}, token...)); err != nil {
		return credential{}, refusalReason(err), err
	}
	return proven, "", nil
}

// exporterOf returns bytes that only the two ends of this TLS connection have.
func exporterOf(conn *tlsConn) ([]byte, error) {
	state := conn.ConnectionState()
	exported, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32) // the length of RFC 9266
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errTLS, err)
	}
	return exported, nil
}
