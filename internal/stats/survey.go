package stats

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const (
	// TopWait is the maximum wait for the top keys or the bans of a member, and for the held units
	// of all keys together.
	TopWait = time.Second
	// totalsWait is the maximum wait for the totals of a member.
	totalsWait = 500 * time.Millisecond
	// atOnce is the maximum number of members that are asked at a time.
	atOnce = 16
)

// SurveyConfig contains the dependencies of a Survey.
type SurveyConfig struct {
	Env       *env.Env
	Meters    *Meters
	Identity  identity.Identity
	TellsKeys bool // whether other members may receive the text of keys
	// InFlight returns the Rate of the InFlight limit with the given name, if this node knows the limit.
	InFlight func(limit string) (rate int64, known bool)
	Checks   env.Checks
}

// Survey asks all members of a cluster for their decisions, for their bans, and for the keys that
// they are asked for most, and answers the same requests for this node. A Survey has no state of
// its own and changes nothing, and checks do not use it.
type Survey struct{ cfg SurveyConfig }

// NewSurvey returns the Survey of a node.
func NewSurvey(cfg SurveyConfig) *Survey { return &Survey{cfg} }

// ClusterTop lists the keys that are asked for most, the keys that are denied most, and the keys
// with the most held units.
type ClusterTop struct {
	Asked, Denied []TopKey
	Held          []HeldKey
	Missing       []string // names of members that have not answered
	Silent        []string // names of the members that do not keep top keys
}

// HeldKey is a key with the number of its held units, as counted by the deciding member.
type HeldKey struct {
	TopKey
	Held, Most int64 // Held is the number of held units, or Most if more are held. Most is the maximum that the limit allows
}

// AppendTop appends the answer of this node to OpTop.
func (s *Survey) AppendTop(b []byte) []byte {
	top := s.ownTop()
	return top.Append(b, s.cfg.TellsKeys)
}

// AppendTotals appends the answer of this node to OpTotals.
func (s *Survey) AppendTotals(b []byte) []byte {
	t := s.cfg.Meters.Limits.Totals()
	return t.Append(b)
}

func (s *Survey) ownTop() Top { return s.cfg.Meters.TopKeys.Top(s.cfg.Env.Monotonic()) }

// Totals returns the decisions of each member by its name, and the names of the members that did
// not answer. The error is the context's.
func (s *Survey) Totals(ctx context.Context) (members map[string]Totals, missing []string, err error) {
	v, all, errs := askAll(ctx, s, wire.OpTotals, totalsWait, ParseTotals, s.cfg.Meters.Limits.Totals)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	members = make(map[string]Totals)
	for i := range all {
		if errs[i] != nil {
			missing = append(missing, v.Members[i].Name)
			continue
		}
		members[v.Members[i].Name] = all[i]
	}
	return members, missing, nil
}

// AppendBans appends the answer of this node to OpBans.
func (s *Survey) AppendBans(b []byte) []byte { return AppendBans(b, s.ownBans(), s.cfg.TellsKeys) }

func (s *Survey) ownBans() []Ban { return s.cfg.Meters.BanList.List(s.cfg.Env.TimeOfDay()) }

// Bans returns the bans that members list, and the names of the members that did not answer. The error is
// the context's.
func (s *Survey) Bans(ctx context.Context) (all []Ban, missing []string, err error) {
	v, lists, errs := askAll(ctx, s, wire.OpBans, TopWait, ParseBans, s.ownBans)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	for i, err := range errs {
		if err != nil {
			missing = append(missing, v.Members[i].Name)
		}
	}
	if v.Self < 0 { // this node has left
		lists = append(lists, s.ownBans())
	}
	all = mergeBans(lists)
	for i := range all {
		b := &all[i]
		b.Masked = b.Known && s.isMasked(b.Limit, b.Key, b.ID)
	}
	return all, missing, nil
}

// Top returns the top keys of all members. Each list has at most the number of keys in the argument most. The
// error is the context's.
func (s *Survey) Top(ctx context.Context, most int) (t ClusterTop, err error) {
	v, all, errs := askAll(ctx, s, wire.OpTop, TopWait, ParseTop, s.ownTop)
	for i := range all {
		switch {
		case errs[i] != nil:
			t.Missing = append(t.Missing, v.Members[i].Name)
		case all[i].Silent:
			t.Silent = append(t.Silent, v.Members[i].Name)
		}
	}
	if v.Self < 0 { // this node has left
		all = append(all, s.ownTop())
	}
	asked, denied := MergeTop(all, MaxTop)
	s.setMasked(asked)
	s.setMasked(denied)
	held := s.heldKeys(ctx, slices.Concat(asked, denied))
	if err := ctx.Err(); err != nil {
		return ClusterTop{}, err
	}
	t.Asked, t.Denied = asked[:min(len(asked), most)], denied[:min(len(denied), most)]
	t.Held = held[:min(len(held), most)]
	return t, nil
}

// heldKeys returns the held units of the given keys, without the keys of limits that are not InFlight. It takes at
// most TopWait.
func (s *Survey) heldKeys(ctx context.Context, all []TopKey) []HeldKey {
	ctx, cancel := context.WithTimeout(ctx, TopWait)
	defer cancel()
	slices.SortFunc(all, func(a, b TopKey) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	all = slices.CompactFunc(all, func(a, b TopKey) bool { return a.ID == b.ID })
	var asks []wire.Ask
	all = slices.DeleteFunc(all, func(k TopKey) bool {
		rate, known := s.cfg.InFlight(k.Limit)
		if !known {
			return true
		}
		id := bucket.ID{Hi: binary.BigEndian.Uint64(k.ID[:]), Lo: binary.BigEndian.Uint64(k.ID[8:])}
		// With FailOpen the result describes the whole limit, and not the share of this side.
		asks = append(asks, wire.Ask{ID: id, Name: k.Limit, Limit: &bucket.Limit{Algorithm: bucket.InFlight, Rate: rate}, Units: 1, Partition: wire.FailOpen, Peek: wire.Peek{Latest: true}})
		return false
	})
	if len(asks) == 0 {
		return nil
	}
	held := make([]HeldKey, len(asks))
	env.Gather(len(asks), atOnce, func(i int) {
		var r wire.Result
		if s.cfg.Checks.Do(ctx, wire.OpPeek, &asks[i], &r) == nil {
			held[i] = HeldKey{all[i], r.Limit - r.Remaining, r.Limit}
		}
	})
	held = slices.DeleteFunc(held, func(k HeldKey) bool { return k.Held == 0 })
	slices.SortStableFunc(held, func(a, b HeldKey) int { return cmp.Compare(b.Held, a.Held) })
	return held
}

// setMasked sets Masked of all keys.
func (s *Survey) setMasked(all []TopKey) {
	for i := range all {
		k := &all[i]
		k.Masked = k.Known && s.isMasked(k.Limit, k.Key, k.ID)
	}
}

// isMasked reports whether the text key is the masked form of a secret key. The ID of a masked text
// differs from id, which is the ID of the whole key.
func (s *Survey) isMasked(limit, key string, id [16]byte) bool {
	computed := s.cfg.Identity.ID(identity.Prefix(limit), key)
	computed.Hi |= binary.BigEndian.Uint64(id[:]) & wire.GlobalIDBit
	return identity.Bytes(computed) != id
}

// askAll sends op to every other member that this node can reach, and waits for each for at
// most the time wait. The error of a member that it cannot reach is cluster.ErrDisconnected. The function
// own returns the answer of this node. The answers and the errors are in the order of the view's
// members.
func askAll[T any](ctx context.Context, s *Survey, op wire.Op, wait time.Duration, parse func([]byte) (T, error), own func() T) (v *view.View, all []T, errs []error) {
	v = s.cfg.Env.View()
	all, errs = make([]T, len(v.Members)), make([]error, len(v.Members))
	env.Gather(len(v.Members), atOnce, func(i int) {
		switch hop := v.Next[i]; { // through another member, if this node is not connected to the member itself
		case i == v.Self:
			all[i] = own()
		case hop < 0:
			errs[i] = cluster.ErrDisconnected
		default:
			h := wire.Header{Op: op, Hops: wire.MaxHops, Wait: wait, To: v.Hashes[i]}
			answer, err := env.Call(ctx, v.Members[hop].Peer, h, nil, wait)
			if err == nil {
				all[i], err = parse(answer)
			}
			errs[i] = err
		}
	})
	return v, all, errs
}
