package processtests

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// securedRegions returns the configurations of three regions from docs/regions.md. Each region
// has its own secret, and each pair of regions has a shared secret.
func securedRegions() map[string]weir.Config {
	secret := func(name string) []byte { return fmt.Appendf(nil, "%-32s", name) }
	eu, us, ap := secret("eu"), secret("us"), secret("ap")
	apEU, apUS, euUS := secret("ap and eu"), secret("ap and us"), secret("eu and us")
	secured := map[string]weir.Config{
		"eu": {
			Region:        "eu",
			Regions:       map[string][]string{"us": {"limits.us.example:7946"}, "ap": {"limits.ap.example:7946"}},
			Secrets:       [][]byte{eu},
			RegionSecrets: map[string][][]byte{"us": {euUS}, "ap": {apEU}},
		},
		"us": {
			Region:        "us",
			Regions:       map[string][]string{"eu": {"limits.eu.example:7946"}, "ap": {"limits.ap.example:7946"}},
			Secrets:       [][]byte{us},
			RegionSecrets: map[string][][]byte{"eu": {euUS}, "ap": {apUS}},
		},
		"ap": {
			Region:        "ap",
			Regions:       map[string][]string{"eu": {"limits.eu.example:7946"}, "us": {"limits.us.example:7946"}},
			Secrets:       [][]byte{ap},
			RegionSecrets: map[string][][]byte{"eu": {apEU}, "us": {apUS}},
		},
	}
	return secured
}

// requestCounter is a handler that counts requests and sends empty answers.
type requestCounter struct{ requests atomic.Int64 }

func (*requestCounter) Changed()                                {}
func (*requestCounter) Answered()                               {}
func (*requestCounter) HandleLate(cluster.Peer, []byte, []byte) {}
func (a *requestCounter) Serve(b *cluster.Batch) {
	a.requests.Add(int64(len(b.Requests)))
	for i := range b.Requests {
		b.Reply(i, nil)
	}
}

// outsider starts an attacker that has secrets of a region.
func outsider(t *testing.T, cfg cluster.Config) (cluster.Cluster, *requestCounter, error) {
	t.Helper()
	cfg.Bind = "127.0.0.1:0"
	cfg.Name, cfg.Seed, cfg.Logger = cfg.Region+"-0", identity.New(nil).Fingerprint(), quiet
	c, is := cluster.NewGossip(cfg), new(requestCounter)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), lab.GiveUp)
	defer cancel()
	return c, is, c.Start(ctx, is)
}

// resetRequest returns a request that resets a key of l. The receiver does not use the Rate and
// Per of the request.
func resetRequest(l *weir.Limiter, key string, at time.Time) []byte {
	a := wire.Ask{ID: identity.FromBytes(l.ID(key)), Limit: &bucket.Limit{Rate: 10, Per: time.Hour}, Reset: uint64(at.UnixNano())}
	return a.Append(wire.Header{Op: wire.OpReset, Asks: 1}.Append(nil))
}

// With RegionSecrets, all regions share a Global limit. An attacker that has the secrets of one
// region cannot act as a node of another region.
func TestSecretOfRegionSpeaksForItAlone(t *testing.T) {
	t.Parallel()
	secured := securedRegions()
	at := map[string]string{"eu": lab.FreeAddr(t), "us": lab.FreeAddr(t), "ap": lab.FreeAddr(t)}
	nodes := map[string]*node{}
	for _, region := range []string{"eu", "us"} {
		cfg := secured[region]
		cfg.Name, cfg.Bind, cfg.Timeout, cfg.Logger = region, at[region], 2*time.Second, quiet
		cfg.Regions = map[string][]string{}
		for other, addr := range at {
			if other != region {
				cfg.Regions[other] = []string{addr}
			}
		}
		nodes[region] = startAt(t, cfg)
	}
	eu, us := nodes["eu"], nodes["us"]
	regional := testnode.Limiter(t, eu, weir.Limit{Name: "regional", Algorithm: weir.SlidingLog, Rate: 10, Per: time.Hour})
	global := testnode.Limiter(t, eu, weir.Limit{Name: "global", Algorithm: weir.SlidingLog, Rate: 10, Per: time.Hour, Scope: weir.Global})
	require.True(t, allow(t, regional, "key", 10).Allowed)
	spend := func() {
		t.Helper()
		_, err := global.Debit(t.Context(), "key", 10)
		require.NoError(t, err)
	}
	spend()
	_, err := testnode.Limiter(t, us, global.Limit()).Debit(t.Context(), "another", 10)
	require.NoError(t, err)
	lab.Eventually(t, "both regions reach each other", func() bool {
		return eu.Stats().Regions["us"].Reached && us.Stats().Regions["eu"].Reached
	})
	requests := map[string][]byte{
		"a reset of a Regional count":   resetRequest(regional, "key", time.Now()),
		"a reset of a Global count":     resetRequest(global, "key", time.Now()),
		"an exchange in a third's name": (&countsync.Exchange{Region: "us"}).Append(wire.Header{Op: wire.OpExchange}.Append(nil)),
	}
	untouched := func() {
		t.Helper()
		require.EqualValues(t, 10, eu.Used(regional.ID("key")))
		require.EqualValues(t, 10, eu.Used(global.ID("key")))
		require.Len(t, eu.Members(), 1)
	}
	held := secured["ap"].RegionSecrets["eu"]

	// The attacker has the secret that ap shares with eu, and claims to be in region us.
	for _, says := range []cluster.Config{
		{Region: "us", Secrets: [][]byte{make([]byte, 32)}, RegionSecrets: map[string][][]byte{"eu": held}},
		{Region: "us", Secrets: held},
	} {
		before := eu.Stats().Cluster.Refused["identity"]
		says.Regions = map[string][]string{"eu": {at["eu"]}}
		c, _, err := outsider(t, says)
		require.NoError(t, err)
		lab.Eventually(t, "the identity is refused", func() bool {
			for _, request := range requests {
				_, err := c.Region("eu").Ask(t.Context(), request, nil, time.Second)
				require.ErrorIs(t, err, cluster.ErrDisconnected)
			}
			return eu.Stats().Cluster.Refused["identity"] > before
		})
		untouched()
	}
	// The attacker claims to be a member of region eu.
	lab.Eventually(t, "the member refuses it", func() bool {
		var c cluster.Cluster
		if c, _, err = outsider(t, cluster.Config{Region: "eu", Secrets: held, Join: []string{at["eu"]}}); err == nil {
			require.Len(t, c.View().Members, 1, "it joined")
			require.NoError(t, c.Close())
		}
		return err != nil
	})
	require.ErrorContains(t, err, "does not accept this node's Name or Region")
	untouched()

	// A node of eu connects to the attacker as if the attacker were a node of us.
	there, is, err := outsider(t, cluster.Config{Region: "us", Secrets: held, Regions: map[string][]string{"eu": {"127.0.0.1:1"}}})
	require.NoError(t, err)
	self := there.View()
	misled := secured["eu"]
	misled.Name, misled.Bind, misled.Logger = "eu", "127.0.0.1:0", quiet
	misled.Regions = map[string][]string{"us": {self.Members[self.Self].Addr}, "ap": {"127.0.0.1:1"}}
	n, err := weir.Start(t.Context(), misled)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	require.ErrorAs(t, testnode.Limiter(t, n, global.Limit()).Reset(t.Context(), "key"), new(*weir.ErrPartial))
	lab.Eventually(t, "the impostor is refused", func() bool { return there.Stats().Refused["authentication"] > 1 })
	require.Zero(t, is.requests.Load())
	require.False(t, n.Stats().Regions["us"].Reached)

	// As a node of ap, it can reset a Global count but not a Regional count.
	c, _, err := outsider(t, cluster.Config{
		Region: "ap", Secrets: secured["ap"].Secrets, RegionSecrets: map[string][][]byte{"eu": held}, Regions: map[string][]string{"eu": {at["eu"]}},
	})
	require.NoError(t, err)
	ask := func(about string) (answer []byte) {
		t.Helper()
		lab.Eventually(t, "the region answers "+about, func() bool {
			answer, err = c.Region("eu").Ask(t.Context(), requests[about], nil, 5*time.Second)
			return err == nil
		})
		return answer
	}
	require.Empty(t, ask("a reset of a Regional count"))
	require.Empty(t, ask("an exchange in a third's name"))
	untouched()
	require.NotEmpty(t, ask("a reset of a Global count"))
	require.Zero(t, eu.Used(global.ID("key")))
	require.EqualValues(t, 10, eu.Used(regional.ID("key")))

	// The same applies to a node of us.
	spend()
	lab.Eventually(t, "the reset reaches each region but ap, which has no nodes", func() bool {
		partial := new(weir.ErrPartial)
		require.ErrorAs(t, testnode.Limiter(t, us, global.Limit()).Reset(t.Context(), "key"), &partial)
		return slices.Equal(partial.Members, []string{"region ap"})
	})
	require.Zero(t, eu.Used(global.ID("key")))
	require.NoError(t, testnode.Limiter(t, us, regional.Limit()).Reset(t.Context(), "key"))
	require.EqualValues(t, 10, eu.Used(regional.ID("key")))
}
