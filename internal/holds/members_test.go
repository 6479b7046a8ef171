package holds

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// member is a member of a cluster in which all members are connected to each other. A member answers at once,
// unless mute or takes is set.
type member struct {
	*Holds
	t     *testing.T
	env   env.Env
	all   []*member     // all members of the cluster
	asked atomic.Int64  // number of messages that arrived from other members
	mute  atomic.Bool   // if true, the member does not answer messages
	takes time.Duration // the time until the member answers
	age   time.Duration // age of the cluster
}

// noChecks drops the messages of Send. Its other methods must not be called.
type noChecks struct{ env.Checks }

func (noChecks) Send(wire.Op, *wire.Ask) {}

func (m *member) Age() time.Duration { return m.age }

func (*member) Date() time.Duration { return zeroAge() }

// newMembers returns a cluster of n members.
func newMembers(t *testing.T, n int) []*member {
	all := make([]*member, n)
	for i := range all {
		m := &member{t: t, all: all}
		m.env.Clock = env.NewClock(nil)
		m.env.Begin()
		t.Cleanup(func() { require.NoError(t, m.env.Close(func() error { return nil })) })
		m.Holds = New(Config{Env: &m.env, Checks: noChecks{}, Timeout: 100 * time.Millisecond, Cluster: m, Most: 1 << 20})
		m.looked.Store(m.time())
		all[i] = m
	}
	for self, m := range all {
		v := &cluster.View{Self: self}
		for i := range all {
			var peer cluster.Peer
			if i != self {
				peer = all[i]
			}
			v.Members = append(v.Members, cluster.Member{Name: string(rune('a' + i)), State: cluster.Serving, Announced: cluster.Serving, Peer: peer})
			v.Direct = append(v.Direct, true)
		}
		v.Connected = clustertest.Mesh(len(all))
		m.env.Store(view.New(0, v, view.Terms{Replicas: 1}, nil))
	}
	return all
}

func (m *member) Ask(_ context.Context, request, answer []byte, _ time.Duration) ([]byte, error) {
	m.asked.Add(1)
	time.Sleep(m.takes)
	if m.mute.Load() {
		return nil, cluster.ErrTimeout
	}
	return m.serve(request, answer)
}

func (m *member) Send(request []byte) {
	m.asked.Add(1)
	_, err := m.serve(request, nil)
	require.NoError(m.t, err)
}

// serve returns the response of the member to which the request is addressed.
func (m *member) serve(request, answer []byte) ([]byte, error) {
	h, err := wire.ParseHeader(request)
	require.NoError(m.t, err)
	to := m.all[m.env.View().Named[h.To]]
	serve := map[wire.Op]func(message, dst []byte) ([]byte, error){wire.OpRenew: to.ServeRenew, wire.OpHeld: to.ServeHeld}[h.Op]
	return serve(request[wire.HeaderBytes:], wire.AppendResponse(answer[:0], wire.Done, 0))
}

// disconnect gives m a view without its connection to a member and, if the argument apart is set, without
// the connections of all members to that member. The views of the other members do not change.
func (m *member) disconnect(lost int, apart bool) {
	before := m.env.View()
	v, matrix := *before.View, make([][]bool, len(m.all))
	for i := range matrix {
		for j := range matrix {
			matrix[i] = append(matrix[i], i != lost && j != lost || !apart && i != v.Self && j != v.Self)
		}
	}
	v.Direct = slices.Clone(v.Direct)
	v.Direct[lost], v.Connected = false, clustertest.Rows(matrix)
	m.env.Store(view.New(m.time(), &v, view.Terms{Replicas: 1}, before))
}

func (*member) Delay() time.Duration         { return 0 }
func (m *member) Protocol() cluster.Protocol { return cluster.Protocol{} }

// time returns the time by the clock of the member.
func (m *member) time() int64 { return m.cfg.Env.Monotonic() }

// runRound runs a round of Run, and waits for its errands.
func (m *member) runRound() {
	m.look()
	synctest.Wait()
}

// grant returns a hold of one unit, which granter has granted to m.
func (m *member) grant(granter *member) *Hold {
	a := wire.Ask{ID: granter.id(), Limit: &bucket.Limit{Algorithm: bucket.InFlight, Rate: 10}, Units: 1}
	m.Name(&a, Terms{Number: m.Number()})
	var r wire.Result
	granter.table.hold(&a, -1, false, granter.time(), &r)
	require.True(m.t, r.Allowed)
	o := new(Hold)
	m.RecordGrant(o, &a, &r, m.time())
	return o
}

// mergeRecord adds a record of a client's hold to the member. The record expires after an hour.
func (m *member) mergeRecord(name ref) ref {
	end := m.time() + int64(time.Hour)
	m.table.merge(record{ref: name, units: 1, expires: end, forget: end}, m.time())
	return name
}

// id returns an id over which the member has authority.
func (m *member) id() (id bucket.ID) {
	for !m.env.View().Holds(id) {
		id.Hi += 1<<40 + 1
	}
	return id
}

func TestMemberAsksHoldersToConfirmStaleEntries(t *testing.T) {
	const stale = staleAfter + 1
	for _, c := range []struct {
		name    string
		holds   func(owner, holder *member)
		waits   time.Duration // time until the owner looks
		kept    bool
		unasked bool
	}{
		{"live hold", func(owner, holder *member) { holder.grant(owner) }, stale, true, false},
		{"hold with a lost release", func(owner, holder *member) { holder.table.release(holder.grant(owner)) }, stale, false, false},
		{"recent grant with an answer in transit", func(owner, holder *member) { holder.table.release(holder.grant(owner)) }, staleAfter, true, true},
		{"entry of the owner itself without a caller", func(owner, _ *member) {
			name := ref{owner.id(), owner.self(), owner.Number()}
			owner.table.put(entry{name, 1, owner.time()})
		}, stale, false, true},
		{"silent holder", func(owner, holder *member) {
			holder.table.release(holder.grant(owner))
			holder.mute.Store(true)
		}, stale, true, false},
		{"count of another member", func(owner, holder *member) {
			o := holder.grant(owner)
			owner.table.end(o.ref)
			holder.table.release(o)
			o.id = holder.id()
			owner.table.put(o.entry(owner.time()))
		}, stale, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMembers(t, 2)
				c.holds(all[0], all[1])
				require.Equal(t, 1, all[0].Stats().Known)
				time.Sleep(c.waits)
				all[0].runRound()
				require.Equal(t, c.kept, all[0].Stats().Known == 1)
				require.Equal(t, c.unasked, all[1].asked.Load() == 0)
			})
		})
	}
}

// The stand-in has learned a released hold from a member that does not know of the release. The
// last agreement of the holder with the stand-in is later than the last renewal of that hold.
func TestStandInRemovesReleasedHoldThatMemberReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers(t, 3)
		standIn, holder := all[0], all[1]
		disconnected := *standIn.env.View().View
		disconnected.Direct = []bool{true, true, false}
		standIn.env.Store(standIn.env.View().WithoutMember(2))
		standIn.env.View().View = &disconnected
		id := all[2].id()
		for range 1000 {
			if all[2].env.View().Holds(id) && standIn.env.View().Route(id, 0).To == 0 {
				break
			}
			id.Hi += 1<<40 + 1
		}
		require.Zero(t, standIn.env.View().Route(id, 0).To)
		o := withUnits(&Hold{ref: ref{id, holder.self(), holder.Number()}}, 1)
		renewed := standIn.time()
		time.Sleep(staleAfter)
		holds := holder.grant(standIn)
		holds.id.Lo = id.Lo // in the same shard
		standIn.table.renew(holder.self(), shardOf(id), holds.hash(1), standIn.time())
		standIn.table.put(o.entry(renewed))
		require.Equal(t, 2, standIn.Stats().Known)
		time.Sleep(time.Nanosecond)
		standIn.runRound()
		require.Equal(t, 1, standIn.Stats().Known)
		_, kept := standIn.table.shards[shardOf(id)].entryAt[holds.ref]
		require.True(t, kept)
	})
}

// The owner gets the new number of units at once, or with the next digest if the message is lost. A report of the
// previous number has no effect if it arrives later.
func TestOwnerCountsTheUnitsThatAHoldKeeps(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			all := newMembers(t, 3)
			owner, holder := all[0], all[2]
			a := wire.Ask{ID: owner.id(), Limit: &bucket.Limit{Algorithm: bucket.InFlight, Rate: 10}, Units: 5}
			holder.Name(&a, Terms{Number: holder.Number()})
			owner.table.hold(&a, -1, false, owner.time(), new(wire.Result))
			big := new(Hold)
			holder.RecordGrant(big, &a, &wire.Result{Source: wire.Forwarded}, holder.time())
			used := func() int64 { return owner.table.shards[shardOf(a.ID)].counts[a.ID].units }
			require.EqualValues(t, 5, used())
			former := big.entry(owner.time())
			require.EqualValues(t, 5, holder.ReleaseUnits(big, 0))
			require.EqualValues(t, 2, holder.ReleaseUnits(big, 3))
			if lost {
				owner.table.end(former.ref)
				owner.table.put(former)
				require.EqualValues(t, 5, used())
				holder.runRound()
			}
			require.EqualValues(t, 2, used())
			owner.table.put(former)
			require.EqualValues(t, 2, used())
			require.Positive(t, holder.TimeLeft(big))
			require.Zero(t, holder.ReleaseUnits(big, 2))
			require.Zero(t, holder.TimeLeft(big))
		})
	}
}

// Until the owner has recorded a hold that a stand-in granted, the owner may grant the units again.
func TestHolderReportsGrantOfStandInToOwner(t *testing.T) {
	for _, c := range []struct {
		name           string
		stoodIn        bool
		lost, apart    bool // whether the holder's connection to the owner has just ended, and all connections of the owner
		known, renewed int  // holds that the owner knows of at once, and after the next renewal
	}{
		{"stand-in grant while the owner is late", true, false, false, 1, 1},
		{"stand-in grant just after the connection to the owner ended", true, true, false, 1, 1},
		{"stand-in grant on a side without the owner", true, true, true, 0, 0},
		{"owner grant that the owner has lost", false, false, false, 0, 1},
		{"lost owner grant just before the connection ended", false, true, false, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMembers(t, 3)
				owner, holder := all[0], all[2]
				if c.lost {
					holder.disconnect(0, c.apart)
				}
				o, a := new(Hold), wire.Ask{ID: owner.id(), Limit: &bucket.Limit{Algorithm: bucket.InFlight, Rate: 10}, Units: 1}
				holder.Name(&a, Terms{Number: holder.Number()})
				holder.RecordGrant(o, &a, &wire.Result{Source: wire.Forwarded, StoodIn: c.stoodIn}, holder.time())
				require.Equal(t, c.known, owner.Stats().Known)

				owner.table.end(o.ref) // the report was lost
				holder.runRound()
				require.Equal(t, c.renewed, owner.Stats().Known)
			})
		})
	}
}

func TestRenewalIsAllowedOnceSilentMemberAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers(t, 3)
		standIn, has := all[0], all[1]
		renew := func() (r wire.Result) {
			a := clientAsk(0, 1, 1, 10, time.Minute)
			a.ID = all[2].id()
			has.table.merge(record{ref: refOf(a), units: 1, expires: has.time() + 1e9, forget: has.time() + 1e9}, has.time())
			standIn.Learn(t.Context(), view.AsStandIn, wire.OpExtend, a)
			standIn.Do(standIn.env.View(), view.AsStandIn, wire.OpExtend, a, standIn.time(), &r)
			return r
		}
		has.mute.Store(true)
		r := renew()
		require.False(t, r.Allowed)
		require.False(t, r.Firm, "the other member may have the hold")
		time.Sleep(time.Second)
		has.mute.Store(false)
		require.True(t, renew().Allowed)
	})
}

// A stand-in may have granted a hold while the owner was late, and the record may still be in
// transit to the owner.
func TestOwnerAsksOriginForMissingHold(t *testing.T) {
	for _, c := range []struct {
		name          string
		has, mute     bool // whether the origin has the record, and whether it leaves messages unanswered
		allowed, firm bool
	}{
		{"origin with the hold", true, false, true, false},
		{"silent origin with the hold", true, true, false, false},
		{"origin without the hold", false, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMembers(t, 2)
				owner, origin := all[0], all[1]
				a := clientAsk(0, 1, 1, 10, time.Minute)
				a.ID, a.Hold.Holder = owner.id(), origin.self()
				owner.Learn(t.Context(), view.AsOwner, wire.OpHold, a)
				if c.has {
					origin.table.merge(record{ref: refOf(a), units: 1, expires: origin.time() + 1e9, forget: origin.time() + 1e9}, origin.time())
				}
				origin.mute.Store(c.mute)
				require.False(t, owner.KnowsHolds(owner.env.View(), view.AsOwner, wire.OpExtend, a, owner.env.Monotonic()))
				owner.Learn(t.Context(), view.AsOwner, wire.OpExtend, a)
				var r wire.Result
				owner.Do(owner.env.View(), view.AsOwner, wire.OpExtend, a, owner.time(), &r)
				require.Equal(t, []bool{c.allowed, c.firm}, []bool{r.Allowed, r.Firm})

				origin.mute.Store(false) // the owner has not asked for the next hold of the same count
				a.Hold.Number++
				origin.table.merge(record{ref: refOf(a), units: 1, expires: origin.time() + 1e9, forget: origin.time() + 1e9}, origin.time())
				owner.Learn(t.Context(), view.AsOwner, wire.OpExtend, a)
				r = wire.Result{}
				owner.Do(owner.env.View(), view.AsOwner, wire.OpExtend, a, owner.time(), &r)
				require.True(t, r.Allowed)
			})
		})
	}
}

// While a node was frozen, other members may have decided in its place. The view of the node does
// not show this yet.
func TestFrozenOwnerAsksMembersBeforeItDecides(t *testing.T) {
	for _, c := range []struct {
		name   string
		frozen time.Duration
		looks  bool // Run calls look before the next check
		asks   bool
	}{
		{"late Run", late, false, false},
		{"late Run, after a look", late, true, false},
		{"frozen node", late + 1, false, true},
		{"frozen node, after a look", late + 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMembers(t, 2)
				owner, standIn := all[0], all[1]
				owner.Learn(t.Context(), view.AsOwner, wire.OpHold, &wire.Ask{ID: owner.id()})
				granted := standIn.mergeRecord(ref{owner.id(), 2, 2})
				time.Sleep(c.frozen)
				if c.looks {
					owner.runRound()
				}
				require.Equal(t, !c.asks, owner.KnowsHolds(owner.env.View(), view.AsOwner, wire.OpHold, &wire.Ask{ID: owner.id()}, owner.env.Monotonic()))
				owner.Learn(t.Context(), view.AsOwner, wire.OpHold, &wire.Ask{ID: owner.id()})
				require.True(t, owner.KnowsHolds(owner.env.View(), view.AsOwner, wire.OpHold, &wire.Ask{ID: owner.id()}, owner.env.Monotonic()))
				_, known := owner.table.recordOf(granted)
				require.Equal(t, c.asks, known)
			})
		})
	}
}

// Each change of a client's hold reaches the successor of its owner and the node that asked for the
// hold, and no fourth member.
func TestChangesOfAClientHoldReachItsKeepers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers(t, 4)
		owner := all[0]
		owner.Learn(t.Context(), view.AsOwner, wire.OpHold, &wire.Ask{ID: owner.id()})
		successor := owner.env.View().Named[owner.env.View().Targets(nil, owner.id())[0]]
		origin := 1 + successor%3
		other := 6 - successor - origin
		a := clientAsk(0, 1, 1, 10, time.Minute)
		a.ID, a.Hold.Holder = owner.id(), all[origin].self()
		change := func(op wire.Op) {
			var r wire.Result
			owner.Do(owner.env.View(), view.AsOwner, op, a, owner.time(), &r)
			require.True(t, r.Allowed)
		}
		copied := func() { require.Zero(t, owner.copyRecords(t.Context())) }
		for _, c := range []struct {
			name     string
			change   func()
			ends     time.Duration
			released bool
		}{
			{"grant", func() { change(wire.OpHold); copied() }, time.Minute, false},
			{"renewal", func() { a.Hold.TTL = time.Hour; change(wire.OpExtend); copied() }, time.Hour, false},
			{"release", func() { change(wire.OpRelease); copied() }, 0, true},
			{"grant, as the owner ends at once", func() {
				a.Hold.Number++
				change(wire.OpHold)
				owner.ReleaseAll()
			}, time.Hour, false},
		} {
			c.change()
			for i, keeps := range map[int]bool{successor: true, origin: true, other: false} {
				r, known := all[i].table.recordOf(refOf(a))
				require.Equal(t, keeps, known, c.name)
				require.Equal(t, keeps && c.released, r.released, c.name)
				if keeps {
					require.EqualValues(t, c.ends, max(0, r.expires-owner.time()), c.name)
				}
			}
		}
	})
}

// Node.Close releases all holds before it ends the checks. A check in progress may therefore be
// granted a hold after ReleaseAll.
func TestHoldGrantedAfterReleaseAllIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers(t, 2)
		owner, holder := all[0], all[1]
		holder.ReleaseAll()
		<-holder.Lost(holder.grant(owner))
		require.Zero(t, holder.Stats().Held)
	})
}

func TestFirstHoldWakesRestingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMembers(t, 2)
		for _, m := range all {
			m.env.Go(m.Run)
			m.env.Go(m.RunCopies)
		}
		owner, holder := all[0], all[1]
		time.Sleep(time.Minute)
		holder.table.release(holder.grant(owner)) // the release is lost
		holder.mute.Store(true)
		held := owner.mergeRecord(ref{owner.id(), owner.self(), 1})
		time.Sleep(copyRetry)
		holder.mute.Store(false)
		time.Sleep(3 * time.Second)
		require.Equal(t, 1, owner.Stats().Known, "only the record is known")
		_, copied := holder.table.recordOf(held)
		require.True(t, copied)
	})
}

func TestLeaveWaitsForAcknowledgements(t *testing.T) {
	const never, soon = time.Hour, leaveWait - time.Second
	for _, c := range []struct {
		name                       string
		answers, cancelled, closed time.Duration // when the member answers, the caller gives up, the node closes
		waits                      time.Duration
		err                        error
	}{
		{"immediate answer", 0, never, never, 0, nil},
		{"late answer", soon, never, never, soon, nil},
		{"no answer", never, never, never, leaveWait, ErrUncopied},
		{"canceled context", never, soon, never, soon, context.Canceled},
		{"closed node", never, never, soon, soon, cluster.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMembers(t, 2)
				m, other := all[0], all[1]
				held := m.mergeRecord(ref{m.id(), m.self(), 1})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				other.mute.Store(c.answers > 0)
				time.AfterFunc(c.answers, func() { other.mute.Store(false) })
				time.AfterFunc(c.cancelled, cancel)
				time.AfterFunc(c.closed, func() { m.env.Close(func() error { return nil }) })
				begun := time.Now()
				require.ErrorIs(t, m.Leave(ctx), c.err)
				require.InDelta(t, c.waits, time.Since(begun), float64(copyPause))
				_, copied := other.table.recordOf(held)
				require.Equal(t, c.err == nil, copied)
			})
		})
	}
}

// Requests to members run as errands. If the maximum number of errands is running, no member can be
// asked.
func TestLearnReturnsAtOnceIfTooManyRequestsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMembers(t, 2)[0]
		for m.env.Try(func(ctx context.Context) { <-ctx.Done() }) {
		}
		begun, id := time.Now(), m.id()
		m.Learn(t.Context(), view.AsOwner, wire.OpHold, &wire.Ask{ID: id})
		require.Zero(t, time.Since(begun))
		require.False(t, m.KnowsHolds(m.env.View(), view.AsOwner, wire.OpHold, &wire.Ask{ID: id}, m.env.Monotonic()))
		a := wire.Ask{ID: id, Limit: &bucket.Limit{Algorithm: bucket.InFlight, Rate: 10}, Units: 1}
		m.Name(&a, Terms{Number: m.Number()})
		var r wire.Result
		m.Do(m.env.View(), view.AsOwner, wire.OpHold, &a, m.time(), &r)
		require.False(t, r.Allowed)
		require.Equal(t, denyFor, r.RetryAfter)
		r = wire.Result{}
		m.Do(m.env.View(), view.AsOwner, wire.OpPeek, &a, m.time(), &r)
		require.True(t, r.Unknown)
	})
}

// The other member has renewed the hold for longer, and is reached after the first term has ended.
func TestReleaseOutlivesUnknownRenewals(t *testing.T) {
	const ttl, longer = 3 * time.Second, time.Minute
	const never, found = -1, 900 * time.Millisecond
	for _, c := range []struct {
		name    string
		split   time.Duration // when the releasing member finds that it does not reach the other member
		as      view.Standing
		learns  bool
		renewed bool
	}{
		{"owner that knows all holds", never, view.AsOwner, true, false},
		{"owner that has not asked the other member", never, view.AsOwner, false, true},
		{"owner that does not reach the other member", 0, view.AsOwner, true, true},
		{"owner that finds a partition later", found, view.AsOwner, true, true},
		{"stand-in", never, view.AsStandIn, true, true},
		{"member that decides for itself", 0, view.AsSelf, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMembers(t, 2)
				m, other := all[0], all[1]
				if c.learns {
					m.Learn(t.Context(), view.AsOwner, wire.OpHold, &wire.Ask{ID: m.id()})
				}
				a := clientAsk(0, 1, 1, 10, ttl)
				a.ID = m.id()
				var r wire.Result
				m.table.hold(a, -1, false, m.time(), &r)
				require.True(t, r.Allowed)
				granted, _ := m.table.recordOf(refOf(a))
				if c.renewed {
					other.table.merge(granted, other.time())
					a.Hold.TTL = longer
					other.table.extend(a, true, other.time(), &r)
					require.True(t, r.Allowed)
				}
				a.Hold.TTL = LongestTerm
				whole := m.env.View()
				findSplit := func(at time.Duration) {
					if at == c.split {
						m.env.Store(whole.WithoutMember(1))
						m.Swapped(m.env.View())
					}
				}
				findSplit(0)
				m.Do(m.env.View(), c.as, wire.OpRelease, a, m.time(), &r)
				time.Sleep(found)
				findSplit(found)
				time.Sleep(found)
				m.env.Store(whole)
				m.Swapped(whole)

				time.Sleep(2 * ttl)
				m.runRound()
				_, remembered := m.table.recordOf(refOf(a))
				require.Equal(t, c.renewed, remembered)
				require.Zero(t, m.copyRecords(t.Context()))
				require.Zero(t, other.Stats().Known, "the other member counts the released units")
				_, told := other.table.recordOf(refOf(a))
				require.Equal(t, c.renewed, told)
			})
		})
	}
}

// A member that was frozen must not count the time of a hold from the arrival of a message, because
// the other members may have forgotten the hold.
func TestLateMessagesAreRefused(t *testing.T) {
	const date, ttl = time.Hour, 10 * time.Second
	for _, c := range []struct {
		name string
		date time.Duration
		ask  time.Duration // delay of an ask
		copy time.Duration // delay of a message of records
		late bool
	}{
		{"maximum delay", date, 300 * time.Millisecond, 700 * time.Millisecond, false},
		{"excessive delay", date, 301 * time.Millisecond, 701 * time.Millisecond, true},
		{"no date", 0, time.Minute, time.Minute, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMembers(t, 2)[0]
				m.Learn(t.Context(), view.AsOwner, wire.OpHold, &wire.Ask{ID: m.id()})
				a := clientAsk(0, 1, 1, 10, ttl)
				a.ID, a.Hold.ClusterAge = m.id(), c.date
				for _, op := range []wire.Op{wire.OpHold, wire.OpExtend} {
					m.age = date + c.ask
					var r wire.Result
					m.Do(m.env.View(), view.AsOwner, op, a, m.time(), &r)
					require.Equal(t, !c.late, r.Allowed)
					require.False(t, r.Firm)
				}
				m.age = date + c.copy
				copied := record{ref: ref{m.id(), 2, 2}, units: 1, expires: m.time() + int64(ttl), forget: m.time() + int64(ttl)}
				_, err := m.ServeRenew(appendRecord(beginRecords(7, c.date), &copied, m.time()), nil)
				_, known := m.table.recordOf(copied.ref)
				require.Equal(t, !c.late, err == nil && known)
			})
		})
	}
}

func TestLateAnswersAreRefused(t *testing.T) {
	for takes, known := range map[time.Duration]bool{250 * time.Millisecond: true, 251 * time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			all := newMembers(t, 2)
			m, other := all[0], all[1]
			held := record{ref: ref{m.id(), 1, 1}, units: 1, expires: m.time() + int64(time.Minute), forget: m.time() + int64(time.Minute)}
			other.table.merge(held, other.time())
			other.takes = takes
			m.askMember(t.Context(), m.env.View(), m.env.View().Hashes[1], page{end: parts, ranges: m.env.View().Ranges(view.Held)})
			_, learned := m.table.recordOf(held.ref)
			require.Equal(t, known, learned)
		})
	}
}

// If the node is frozen, it may receive the answer late. The client counts from its request.
func TestLateAnswerDoesNotProlongClientHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMembers(t, 2)[0]
		a := clientAsk(0, 1, 1, 10, 10*time.Second)
		a.Began = m.time()
		time.Sleep(4 * time.Second)
		m.Keep(t.Context(), a, &wire.Result{Renewal: 1 << tagBits})
		kept, _ := m.table.recordOf(refOf(a))
		require.Equal(t, a.Began+int64(10*time.Second), kept.expires)
	})
}
