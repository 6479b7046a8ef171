package weir

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
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

// Node is one member of the cluster, embedded in a process. Its methods are safe
// for concurrent use.
type Node struct {
	cfg       Config // with its defaults
	env       env.Env
	identity  identity.Identity
	counts    *bucket.Store // what is held here: as owner, as a replica, and as this node's own budget
	cluster   cluster.Cluster
	handover  *handover.Handover
	published *publish.Publisher
	regions   *regions.Regions
	registry  *limits.Registry // of the limits that Limiters were made of
	meters    stats.Meters
	asker     *asker.Asker
	owner     *owner.Owner
	clients   clients
	epochs    *epoch.Members
	checks    *check.Checks
	scratches sync.Pool // of *scratch
	joining   joining
	outage    stats.OutageTracker // the outage under way
}

// clients are what this node does for its callers beside checks.
type clients struct {
	queues       *queue.Queues
	holds        *holds.Holds
	reservations *reserve.Reservations
	survey       *stats.Survey
}

// Start listens, joins the cluster, and returns a node that answers at once. ctx
// bounds Start only. That no member to join is found is no error: the node
// starts, says so in its log and its Stats, is not Ready for Config.JoinTimeout,
// answers within Config.Expect's share, and keeps trying. The error is ErrInvalid for a Config that Validate refuses,
// and otherwise says what to do: a port that is taken, a secret or Seed that the
// cluster refuses.
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
		cfg:      cfg,
		env:      env.Env{Region: cfg.Region, Clock: env.NewClock(cfg.Now)},
		identity: identity.New(cfg.Seed),
		counts:   bucket.NewStore(cfg.MaxKeys, salt),
		registry: limits.NewRegistry(cfg.Logger, describe),
		checks:   check.New(),
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
	n.owner = owner.New(n.env.Clock, cfg.Timeout, n.counts, stream, n.regions.Holdings)
	n.asker = asker.New(&n.env, cfg.Timeout, n.owner.ResetNumber, n.checks)
	n.epochs = epoch.NewMembers(epoch.Config{Env: &n.env, Exact: cfg.Timeout})
	box := cfg.box()
	n.clients.reservations = reserve.New(reserve.Config{Clock: n.env.Clock, Identity: n.identity, Region: cfg.Region, Box: box, Salt: salt, Run: n.epochs.Clock, Checks: n.checks})
	n.clients.queues = queue.New(queue.Config{Env: &n.env, Checks: n.checks, Full: ErrFull, Closed: ErrClosed})
	n.clients.holds = holds.New(holds.Config{Env: &n.env, Checks: n.checks, Timeout: cfg.Timeout, Cluster: n.epochs, Most: cfg.MaxKeys, Box: box})
	n.clients.survey = stats.NewSurvey(stats.SurveyConfig{
		Env: &n.env, Meters: &n.meters, Identity: n.identity, TellsKeys: cfg.tellsKeys(), InFlight: n.registry.InFlight, Checks: n.checks,
	})
	n.published = publish.New(publish.Config{Log: cfg.Logger, Env: &n.env})
	n.handover = handover.New(handover.Config{
		Expect: cfg.Expect, Replicas: max(0, cfg.Replicas), Regions: n.regions.Holdings != nil,
		Log: cfg.Logger, Env: &n.env, Cluster: n.cluster, Counts: n.counts, Stream: stream,
		Swapped: n.swapped, Regain: n.regions.Regain, Cease: n.owner.Cease, Leaving: n.asker.Cease,
	})
	n.joining.snapshots = snapshots.New(snapshots.Config{
		Store: cfg.Snapshots, Every: cfg.SnapshotEvery, Node: cfg.Name, Cluster: n.identity.RegionFingerprint(cfg.Region), Keys: snapshots.NewKeys(cfg.Secrets), Build: buildinfo.Version(),
		Log: cfg.Logger, Env: &n.env, Stream: stream, Members: n.epochs, Wake: func(m []countsync.Member) { n.handover.Wake(m) },
		Values: n.published,
	})
	n.meters.TopKeys.Start(cfg.TopKeys, n.env.Monotonic())
	n.joining.began = n.env.Monotonic()
	n.scratches.New = func() any { return new(scratch) }
	n.checks.Connect(n.checkConfig())
	n.env.Begin()
	if err := n.cluster.Start(ctx, n.checks); err != nil {
		_ = n.env.Close(func() error { return nil })
		return nil, fmt.Errorf("weir: %w", err)
	}
	n.handover.Refresh()
	cfg.warnOfPublicSeed(n.env.View())
	n.env.Every(owner.CompactEvery, owner.CompactEvery, func() { n.owner.Compact(cfg.MaxKeys, n.env.Now()) })
	n.env.Go(n.handover.Run)
	n.env.Go(func() {
		n.published.Run(n.env.Context(), publish.CompareEvery+n.env.View().Offset(publish.CompareEvery))
	})
	n.env.Every(limits.DeclareEvery+n.env.View().Offset(limits.DeclareEvery), limits.DeclareEvery, func() { n.registry.Declare(n.env.View()) })
	n.env.Go(func() { n.epochs.Run(n.env.Context()) })
	n.env.Go(n.asker.Run)
	n.env.Go(n.clients.holds.Run)
	n.env.Go(n.clients.holds.RunCopies)
	if n.regions.Holdings != nil {
		n.env.Go(n.regions.Run)
	}
	n.handover.Started(ctx)
	n.load(ctx)
	if len(n.cluster.Stats().Unanswered) > 0 {
		n.env.Go(n.reportJoin)
	}
	env.FillInside(ctx, n.inside())
	n.outage.Restart(n.env.Monotonic())
	n.env.Every(watchEvery, watchEvery, func() {
		n.outage.Observe(n.meters.Limits.OutageFacts(n.env.View()), n.env.Monotonic()).Log(cfg.Logger)
	})
	return n, nil
}

// checkConfig returns the parts of the node that its checks pass.
func (n *Node) checkConfig() check.Config {
	c := check.Config{
		Env: &n.env, Timeout: n.cfg.Timeout, Messages: messages{n}, Meters: &n.meters, Outage: &n.outage,
		Handover: n.handover, Owner: n.owner, Asker: n.asker, Holds: n.clients.holds, Regions: n.regions,
	}
	if n.cfg.Tracer != nil {
		c.Tracer = tracer{n.cfg.Tracer}
	}
	if n.cfg.Observer != nil {
		c.Observer = hopObserver{n.cfg.Observer}
	}
	return c
}

// inside returns the state of the node that tests of other packages read.
func (n *Node) inside() env.Inside {
	return env.Inside{
		View:      n.env.View,
		Monotonic: n.env.Monotonic,
		Used: func(id [16]byte) int64 {
			units, _, _ := n.counts.Used(identity.FromBytes(id), n.env.Now())
			return units
		},
		EndPushback: func(id [16]byte) { n.asker.End(identity.FromBytes(id)) },
	}
}

// swapped tells the parts that go by the view of a new one.
func (n *Node) swapped(v *view.View) {
	now := n.env.Monotonic()
	n.outage.Lost(now, v.Avoided(now)...)
	n.published.Changed()
	n.epochs.Swapped(v)
	n.clients.holds.Swapped(v)
}

// Limiter checks l and returns what checks keys against it. It is cheap and may
// be called as often as limits change. The error is ErrInvalid, naming every
// field that is wrong, or ErrClosed.
//
// Limits of one Name share each key's count. That another Limiter of the Name was
// made with another Algorithm at the same Version is ErrInvalid: checks by it would
// be judged by the other. Where other numbers were given at the same Version, to
// this node or to another, all is judged as Limit.Version says, it counts in
// Stats.Conflicts, and is logged at Warn, once for each Name and Version. Nodes tell
// each other of their limits every few seconds. A node remembers the first 4,096
// names that it is given, and of each the highest Version; others are not compared.
func (n *Node) Limiter(l Limit) (*Limiter, error) {
	if n.env.Ended() {
		return nil, ErrClosed
	}
	loc, err := l.check()
	if err != nil {
		return nil, err
	}
	if err := n.registry.Add(l.declared(), n.env.Monotonic()); err != nil {
		return nil, fmt.Errorf("%w Limit: %w", ErrInvalid, err)
	}
	made := &Limiter{node: n, limit: l, numbers: l.numbers(), prefix: identity.Prefix(l.Name), meter: n.meters.Limits.Of(l.Name)}
	if l.Calendar != NoCalendar || l.Scope == Global && l.Algorithm == FixedWindow {
		made.window = limits.NewWindows(limits.Unit(l.Calendar), loc)
	}
	return made, nil
}

// Ready reports whether the node holds authority over what it owns, or has none to
// wait for: nobody joins while a member is missing, and until then it answers
// through the others. It is false after Leave and after Close. A deploy that
// waits for it before it stops the next node hands every count over.
//
// While Config.Join names other nodes and no other member has ever been met, it is
// false for Config.JoinTimeout at most, so that a deploy notices a wrong address. So it
// is while the node has met others, and reaches none of those that serve.
func (n *Node) Ready() bool {
	v := n.env.View()
	switch {
	case n.env.Ended() || n.handover.Starting() || n.joining.snapshots.Loading() || v.Self < 0 || n.awaitsJoin():
		return false
	case v.Members[v.Self].Announced == cluster.Joining:
		return len(v.Points) > 0 && v.Side < len(v.Points) && !v.Yields()
	}
	return v.Serves() && len(v.Givers()) == 0
}

// Leave hands over what this node holds to the members that own it next, and then says
// goodbye: the other members take this node off the roster. From then on it only
// asks, and passes on what still reaches it, until Close; to leave again does
// nothing. First each member that is reached answers once, or is found to be missing,
// within two seconds. It takes as long as ctx allows to hand over, ten seconds in all.
// If that does not do, Leave says so, and no goodbye: the node answers for what it
// still holds and goes on handing it over until Close, and Leave may be called
// again to wait for that. With Config.Snapshots it writes once more before it says goodbye,
// for ten minutes at most, and gives a store up that takes nothing for a minute.
// It returns ctx.Err if ctx is done before the others have been told, ErrClosed if Close
// comes first, and an error if the goodbye reached nobody within some seconds, or the
// snapshot was not written.
func (n *Node) Leave(ctx context.Context) error {
	if n.env.Ended() {
		return ErrClosed
	}
	member := n.env.View().Self >= 0
	left := n.handover.Leave(ctx)
	if left == nil {
		left = n.clients.holds.Leave(ctx)
	}
	var saved error
	if member {
		saved = n.joining.snapshots.Leave(ctx) // now this node has all that others handed over to it
	}
	switch {
	case errors.Is(left, cluster.ErrClosed):
		return ErrClosed
	case left != nil:
		return left
	}
	err := errors.Join(n.cluster.Leave(ctx), saved)
	n.handover.Refresh()
	switch {
	case errors.Is(err, cluster.ErrClosed) || n.env.Ended():
		return ErrClosed
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("weir: leaving: %w", err)
	}
	return nil
}

// Close stops the node at once, like a crash, and waits for what it started.
// From then on every check is ErrClosed.
func (n *Node) Close() error {
	if !n.env.Ended() {
		n.clients.holds.ReleaseAll()
	}
	return n.env.Close(n.cluster.Close)
}
