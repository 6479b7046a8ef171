package weir

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/asker"
	"github.com/weir-go/weir/internal/buildinfo"
	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/epoch"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/holds"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/limits"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/publish"
	"github.com/weir-go/weir/internal/queue"
	"github.com/weir-go/weir/internal/regions"
	"github.com/weir-go/weir/internal/reserve"
	"github.com/weir-go/weir/internal/snapshots"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/view"
	countsync "github.com/weir-go/weir/sync"
)

// Start listens, joins the cluster, and returns a node that can answer checks at once. ctx bounds
// only Start. If the node finds no member to join, Start does not fail: the node reports this in
// its log and its Stats, is not Ready for Config.JoinTimeout, decides within the share of
// Config.Expect, and tries again. The error is ErrInvalid for an invalid Config. Another error
// names the remedy, such as for a port in use, or for a secret or Seed that the cluster refuses.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	name, err := identity.Incarnation(cfg.Name, cfg.Rand)
	if err != nil {
		return nil, err
	}
	salt, err := identity.Salt(cfg.Rand)
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg:         cfg,
		env:         env.Env{Region: cfg.Region, Clock: env.NewClock(cfg.Now)},
		identity:    identity.New(cfg.Seed),
		counts:      bucket.NewStore(cfg.MaxKeys, salt),
		registry:    limits.NewRegistry(cfg.Logger),
		checks:      check.New(),
		usesCallers: usesCallers(cfg.Observer),
	}
	if o, ok := cfg.Cluster.(env.Spender); ok {
		n.counts.Observe(
			func(id bucket.ID, units int64) { o.Spent(identity.Bytes(id), units) },
			func(id bucket.ID, number uint64) { o.Reset(identity.Bytes(id), number) },
		)
	}
	n.cluster = cfg.cluster(name, n.identity.Fingerprint())
	stream := countsync.New(0, n.counts)
	if c, ok := cfg.Cluster.(env.Capper); ok {
		stream.Cap(c.Caps())
	}
	n.regions = regions.New(regions.Config{
		Others: slices.Collect(maps.Keys(cfg.Regions)), Shares: cfg.RegionShares, Statements: stream.Caps().Statements, Timeout: cfg.Timeout,
		Log: cfg.Logger, Env: &n.env, Cluster: n.cluster,
		Replicate: func(ids []bucket.ID, now int64, v *view.View) { n.handover.Replicate(ids, now, v) },
	}, n.counts)
	stream.Hold(n.regions.Holdings)
	stream.WhenReset(n.checks.WhenReset)
	n.owner = owner.New(n.env.Clock, check.LongestCheck(cfg.Timeout), n.counts, stream, n.regions.Holdings)
	n.asker = asker.New(&n.env, cfg.Timeout, n.owner.ResetNumber, n.checks)
	n.epochs = epoch.NewMembers(epoch.Config{Env: &n.env, Exact: cfg.Timeout})
	box := cfg.box()
	n.clients.reservations = reserve.New(reserve.Config{Clock: n.env.Clock, Identity: n.identity, Region: cfg.Region, Box: box, Salt: salt, Run: n.epochs.Clock, Checks: n.checks})
	n.clients.queues = queue.New(queue.Config{Env: &n.env, Checks: n.checks})
	n.clients.holds = holds.New(holds.Config{Env: &n.env, Checks: n.checks, Timeout: cfg.Timeout, Cluster: n.epochs, Most: cfg.MaxKeys, Box: box})
	n.clients.survey = stats.NewSurvey(stats.SurveyConfig{
		Env: &n.env, Meters: &n.meters, Identity: n.identity, TellsKeys: cfg.sharesKeys(), InFlight: n.registry.InFlight, Checks: n.checks,
	})
	n.published = publish.New(publish.Config{Log: cfg.Logger, Env: &n.env})
	n.handover = handover.New(handover.Config{
		Expect: cfg.Expect, JoinTimeout: cfg.JoinTimeout, Replicas: max(0, cfg.Replicas), Regions: n.regions.Holdings != nil,
		Log: cfg.Logger, Env: &n.env, Cluster: n.cluster, Counts: n.counts, Stream: stream,
		Swapped: n.notifyView, Regain: n.regions.Regain, Cease: n.owner.Cease, Leaving: n.asker.Cease,
	})
	n.snapshots = snapshots.New(snapshots.Config{
		Store: cfg.Snapshots, Every: cfg.SnapshotEvery, Node: cfg.Name, Cluster: n.identity.RegionFingerprint(cfg.Region), Keys: snapshots.NewKeys(cfg.Secrets), Build: buildinfo.Version(),
		Log: cfg.Logger, Env: &n.env, Stream: stream, Members: n.epochs, Wake: func(m []countsync.Member) { n.handover.Wake(m); n.handover.Stir() },
		Values: n.published,
	})
	n.meters.TopKeys.Start(cfg.TopKeys, n.env.Monotonic())
	n.outage.Event = make(chan struct{}, 1)
	n.meters.Limits.WithoutOwner = n.outage.Stir
	n.checks.Connect(n.checkConfig())
	n.env.Begin()
	if err := n.cluster.Start(ctx, n.checks); err != nil {
		_ = n.env.Close(func() error { return nil })
		return nil, fmt.Errorf("weir: %w", err)
	}
	n.handover.Refresh()
	cfg.warnOfPublicSeed(n.env.View())
	n.env.Repeat(owner.CompactEvery, nil, func(bool) time.Duration { return n.owner.Compact(cfg.MaxKeys, n.env.Now()) })
	n.env.Go(n.handover.Run)
	n.env.Go(func() {
		n.published.Run(n.env.Context(), publish.CompareEvery+n.env.View().Offset(publish.CompareEvery))
	})
	n.env.Repeat(limits.DeclareEvery+n.env.View().Offset(limits.DeclareEvery), n.registry.Changed(), func(woken bool) time.Duration {
		if woken {
			return n.registry.Hurry()
		}
		return n.registry.Declare(n.env.View())
	})
	n.env.Go(func() { n.epochs.Run(n.env.Context()) })
	n.env.Go(n.asker.Run)
	n.env.Go(n.clients.holds.Run)
	n.env.Go(n.clients.holds.RunCopies)
	if n.regions.Holdings != nil {
		n.env.Go(n.regions.Run)
	}
	n.handover.Started(ctx)
	if cfg.Snapshots != nil {
		n.handover.Track()
		n.snapshots.Begin(ctx)
	}
	if len(n.cluster.Stats().Unanswered) > 0 {
		n.env.Go(n.handover.ReportJoin)
	}
	env.FillInside(ctx, n.insideState())
	n.outage.Restart(n.env.Monotonic())
	n.env.Go(n.watchOutages)
	return n, nil
}

// checkConfig returns the parts of the node that package check uses.
func (n *Node) checkConfig() check.Config {
	c := check.Config{
		Env: &n.env, Timeout: n.cfg.Timeout, Log: n.cfg.Logger, Meters: &n.meters, Outage: &n.outage,
		Handover: n.handover, Owner: n.owner, Asker: n.asker, Holds: n.clients.holds, Regions: n.regions,
		Published: n.published, Registry: n.registry, Epochs: n.epochs, Survey: n.clients.survey,
	}
	if n.cfg.Tracer != nil {
		c.Tracer = tracer{n.cfg.Tracer}
	}
	if n.cfg.Observer != nil {
		c.Hopped = func(ctx context.Context, h check.Hop) { n.cfg.Observer.Hopped(ctx, HopEvent(h)) }
	}
	return c
}

// notifyView passes a new view to the parts that depend on it.
func (n *Node) notifyView(v *view.View) {
	now := n.env.Monotonic()
	n.outage.RecordLosses(now, v.Avoided(now)...)
	n.outage.Stir()
	n.registry.Stir()
	n.published.Changed()
	n.epochs.Swapped(v)
	n.clients.holds.Swapped(v)
}

// insideState returns the state of the node that tests of other packages read.
func (n *Node) insideState() env.Inside {
	return env.Inside{
		View:      n.env.View,
		Monotonic: n.env.Monotonic,
		Used: func(id [16]byte) int64 {
			units, _, _ := n.counts.Used(identity.FromBytes(id), n.env.Now())
			return units
		},
	}
}
