package main

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

// forwardedKeys is how many keys the callers share.
const forwardedKeys = 100_000

// BenchmarkForwarded is a check that another process decides, over loopback,
// beside an echo of as many bytes that does nothing else.
func BenchmarkForwarded(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			checks := newForwarded(b, callers, MemberConfig{})
			echo := dialEcho(b, start(b, "echo").addr, callers)
			medians := race(b, callers, checks.ask, echo.ask)
			forwarded, bare := medians[0], medians[1]
			forwarded.report(b, "", "checks/s")
			bare.report(b, "echo-", "echo/s")
			b.ReportMetric(forwarded.perSecond/bare.perSecond, "echo-ratio")
			b.ReportMetric(float64(forwarded.p50)/float64(bare.p50), "echo-p50-ratio")
			checks.reportStrays(b)
		})
	}
}

// BenchmarkSealed is the same check over a connection that nothing protects, over one
// that is sealed by Secrets, and under mutual TLS 1.3.
func BenchmarkSealed(b *testing.B) {
	covers := []cover{"", "sealed", "tls"}
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			checks := make([]*forwarded, len(covers))
			asks := make([]contestant, len(covers))
			for i, cover := range covers {
				checks[i] = newForwarded(b, callers, MemberConfig{Cover: cover})
				asks[i] = checks[i].ask
			}
			medians := race(b, callers, asks...)
			plain := medians[0]
			plain.report(b, "plain-", "plain/s")
			for i, cover := range covers[1:] {
				f := medians[i+1]
				f.report(b, string(cover)+"-", string(cover)+"/s")
				b.ReportMetric(f.perSecond/plain.perSecond, string(cover)+"-ratio")
				b.ReportMetric(float64(f.p50)/float64(plain.p50), string(cover)+"-p50-ratio")
			}
			for _, c := range checks {
				c.reportStrays(b)
			}
		})
	}
}

// cover is what protects the connections of a node: nothing, "sealed" by a secret, or
// "tls" with a certificate that all nodes derive from that secret, and trust alone.
type cover string

const benchSecret = "a secret of benchmarks: 32 bytes"

func (c cover) of(cfg *weir.Config) error {
	secret := []byte(benchSecret)
	switch c {
	case "":
	case "sealed":
		cfg.Secrets = [][]byte{secret}
	case "tls":
		seed, err := hkdf.Key(sha256.New, secret, nil, "a certificate", ed25519.SeedSize)
		if err != nil {
			return err
		}
		key := ed25519.NewKeyFromSeed(seed)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
		if err != nil {
			return err
		}
		// Each process' own differs by when it was made: what is pinned is the key.
		pinned := func(s tls.ConnectionState) error {
			if theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !theirs.Equal(key.Public()) {
				return errors.New("bench: another key")
			}
			return nil
		}
		cfg.TLS = &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13,
			ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, VerifyConnection: pinned,
		}
	default:
		return fmt.Errorf("bench: no cover %q", string(c))
	}
	return nil
}

// forwarded asks a node in this process for keys that nodes in other processes
// own.
type forwarded struct {
	limiter *weir.Limiter
	keys    []string
	callers []caller
}

// caller fills a cache line.
type caller struct {
	next   int // in keys
	strays int // decisions that the owner did not make
	_      [48]byte
}

func newForwarded(tb testing.TB, callers int, c MemberConfig) *forwarded {
	members := startMembers(tb, 1, c)
	tb.Cleanup(func() { endMembers(tb, members) })
	limit := limitOf("token_bucket")
	limit.NoLeases = true
	l, err := join(tb, c, members...).Limiter(limit)
	require.NoError(tb, err)
	f := &forwarded{limiter: l, callers: make([]caller, callers)}
	f.keys = worker.KeysThat(forwardedKeys, func(key string) bool { return !l.Owner(key).Self })
	for i := range f.callers {
		f.callers[i].next = i * len(f.keys) / callers
	}
	return f
}

// ask is a contestant.
func (f *forwarded) ask(i int) error {
	c := &f.callers[i]
	d, err := f.limiter.Allow(context.Background(), f.keys[c.next])
	if c.next++; c.next == len(f.keys) {
		c.next = 0
	}
	if d.Source != weir.Forwarded {
		c.strays++
	}
	return err
}

// reportStrays says how many decisions the owner did not make. Where there are
// any, the figures are partly those of the local answer, and worth nothing.
func (f *forwarded) reportStrays(b *testing.B) {
	strays := 0
	for i := range f.callers {
		strays += f.callers[i].strays
	}
	b.ReportMetric(float64(strays), "unforwarded")
	if strays > 0 {
		b.Logf("%d decisions were not the owner's: these figures are void", strays)
	}
}
