package weir

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/wire"
)

// Validate returns all errors of the Config, joined, and nil for a valid Config. It changes nothing.
// Each error is ErrInvalid.
func (c Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	c.checkCluster(wrong)
	c.checkShares(wrong)
	c.checkSecrets(wrong)
	c.checkWaits(wrong)
	c.checkSizes(wrong)
	return invalid("Config", errs...)
}

// checkCluster validates Name, and the fields that package cluster uses.
func (c *Config) checkCluster(wrong func(format string, args ...any)) {
	if len(c.Name) > maxLabelBytes {
		wrong("Name has %d bytes: use at most %d", len(c.Name), maxLabelBytes)
	}
	if strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		wrong("Name %q has spaces or control characters: use a host's or pod's name", c.Name)
	}
	gossip := cluster.Config{Name: "any", Bind: "localhost:0", Region: c.Region, Regions: c.Regions}
	if c.Cluster == nil && c.Bind != "" {
		gossip = c.gossip("any")
	}
	for _, err := range gossip.Problems() {
		wrong("%w", err)
	}
	if c.Cluster != nil || c.Bind != "" {
		return
	}
	for _, field := range []struct {
		name string
		set  bool
	}{{"Advertise", c.Advertise != ""}, {"Join", len(c.Join) > 0}, {"Regions", len(c.Regions) > 0}, {"Secrets", len(c.Secrets) > 0}, {"TLS", c.TLS != nil},
		{"RegionSecrets", len(c.RegionSecrets) > 0}, {"CertificateNames", len(c.CertificateNames) > 0}} {
		if field.set {
			wrong("%s is set and Bind is empty: give Bind a host:port, a node without Bind has no network", field.name)
		}
	}
}

// checkWaits validates JoinTimeout, Timeout, Forget and SnapshotEvery.
func (c *Config) checkWaits(wrong func(format string, args ...any)) {
	for _, field := range []struct {
		name        string
		value, zero time.Duration
		least, most time.Duration
		allowed     string
	}{
		{"JoinTimeout", c.JoinTimeout, defaultJoinTimeout, time.Millisecond, maxJoinTimeout, "1ms to 24h"},
		{"Timeout", c.Timeout, defaultTimeout, 100 * time.Microsecond, wire.MaxTimeout, "100µs to 1m"},
		{"Forget", c.Forget, defaultForget, time.Second, math.MaxInt64, "1s and more"},
		{"SnapshotEvery", c.SnapshotEvery, defaultSnapshotEvery, time.Second, maxSnapshotEvery, "1s to 5m"},
	} {
		if field.value != 0 && (field.value < field.least || field.value > field.most) {
			wrong("%s is %v: use 0 for %v, or %s", field.name, field.value, field.zero, field.allowed)
		}
	}
	if c.Snapshots == nil && c.SnapshotEvery != 0 {
		wrong("SnapshotEvery is set and Snapshots is nil: set Snapshots, as by snapshot.OpenDir, or leave it zero")
	}
}

// checkSizes validates the numbers and the length of Seed.
func (c *Config) checkSizes(wrong func(format string, args ...any)) {
	if n := len(c.Seed); n > 0 && n < identity.MinSeedBytes {
		wrong("Seed has %d bytes: use none, or %d and more; `weir secret` prints one", n, identity.MinSeedBytes)
	}
	if c.Expect < 0 {
		wrong("Expect is %d: use 0, or how many nodes the cluster normally has", c.Expect)
	}
	if c.Replicas < -1 || c.Replicas > maxReplicas {
		wrong("Replicas is %d: use 0 for 1, -1 for none, or 1 to %d", c.Replicas, maxReplicas)
	}
	if c.MaxKeys < 0 {
		wrong("MaxKeys is %d: use 0 for %d, or the maximum number of counts", c.MaxKeys, defaultMaxKeys)
	}
	if c.TopKeys < -1 || c.TopKeys > maxTopKeys {
		wrong("TopKeys is %d: use 0 for %d, -1 for none, or 1 to %d", c.TopKeys, defaultTopKeys, maxTopKeys)
	}
}

// checkShares validates RegionShares.
func (c *Config) checkShares(wrong func(format string, args ...any)) {
	if c.RegionShares == nil {
		return
	}
	names := append(slices.Collect(maps.Keys(c.Regions)), c.Region)
	for _, name := range slices.Sorted(slices.Values(names)) {
		if _, ok := c.RegionShares[name]; !ok {
			wrong("RegionShares has no share of %q: give one to Region and to each of Regions, or leave it nil", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.RegionShares)) {
		if share := c.RegionShares[name]; !slices.Contains(names, name) {
			wrong("RegionShares names %q, which is neither Region nor one of Regions: remove it, or add the region", name)
		} else if share < 1 || share > maxRegionShare {
			wrong("RegionShares of %q is %d: use 1 to %d", name, share, maxRegionShare)
		}
	}
}

// checkSecrets refuses hexadecimal text as Secrets, RegionSecrets and Seed. weir serve decodes
// such a text, so that its nodes would have a different Seed.
func (c *Config) checkSecrets(wrong func(format string, args ...any)) {
	check := func(secret []byte, field string, args ...any) {
		if identity.IsSecretText(secret) {
			wrong(field+" is hexadecimal text: give the bytes that it stands for, as ParseSecrets and ReadSecrets return them", args...)
		}
	}
	for i, secret := range c.Secrets {
		check(secret, "Secrets[%d]", i)
	}
	for region, secrets := range c.RegionSecrets {
		for i, secret := range secrets {
			check(secret, "RegionSecrets[%q][%d]", region, i)
		}
	}
	check(c.Seed, "Seed")
}
