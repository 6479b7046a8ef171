package weir

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/wire"
)

// Ban bans the keys of a limit that are denied too often. The zero Ban bans none. A banned key is denied
// every check, Peek and Wait until the ban ends or Limiter.Reset releases it. Debits and refunds count as
// usual.
//
// Denials by the owner of a key or its stand-in count, and the same denials as this node repeats them
// (Pushback). Denials within a share, of shadows, of a Wait and of bans do not.
type Ban struct {
	Denials int64         // denials within Within that ban a key, 1 to 10,000
	Within  time.Duration // 1 ms to 366 days
	For     BanLengths
}

// BanLengths are the lengths of the first ban of a key and of the next bans, in whole seconds from 1 s to
// 366 days, and zeros after the last length, which applies to all further bans. A ban is a next ban if the
// earlier bans began within the last 24 hours, or within twice the longest length if that is longer.
type BanLengths [wire.BanSteps]time.Duration

const maxBanDenials = 10_000

// checkBan reports invalid fields of the Ban.
func (l *Limit) checkBan(wrong func(format string, args ...any)) {
	b := &l.Ban
	if *b == (Ban{}) {
		return
	}
	if l.Algorithm == InFlight {
		wrong("Ban is set and Algorithm in_flight: leave it zero, only denials of a rate ban a key")
	}
	if b.Denials < 1 || b.Denials > maxBanDenials {
		wrong("Ban.Denials is %d: it must be from 1 to %d", b.Denials, maxBanDenials)
	}
	if err := (&bucket.Limit{Rate: 1, Per: b.Within}).Validate(); err != nil {
		wrong("Ban.Within: %w", err)
	}
	for i, d := range b.For {
		switch {
		case d == 0 && i == 0:
			wrong("Ban.For is zero: it must be the length of a ban, from 1s to %v", wire.LongestBan)
		case d != 0 && i > 0 && b.For[i-1] == 0:
			wrong("Ban.For[%d] is %v after a zero: put the zeros last", i, d)
		case d != 0 && (d < time.Second || d > wire.LongestBan || d%time.Second != 0):
			wrong("Ban.For[%d] is %v: it must be whole seconds, from 1s to %v", i, d, wire.LongestBan)
		}
	}
}

// bans is the Ban of a Limiter, as its asks carry it.
type bans struct {
	strikes bucket.Limit // the denials that ban a key; a Rate of 0 bans none
	lengths wire.Ban
}

func (l *Limit) bans() (b bans) {
	if l.Ban == (Ban{}) {
		return b
	}
	b.strikes = bucket.Limit{Algorithm: bucket.SlidingLog, Rate: l.Ban.Denials, Per: l.Ban.Within, Version: l.Version}
	b.strikes.Durable = b.strikes.DurableByPer()
	for i, d := range l.Ban.For {
		b.lengths[i] = uint32(d / time.Second)
	}
	return b
}

// strike counts a denial of a check toward a ban.
func (l *Limiter) strike(key string, a *wire.Ask, r *wire.Result) {
	if r.Allowed || r.Banned || l.shadow || a.Shadow || r.Source == 0 || r.Source.IsShare() {
		return
	}
	key = strings.Clone(key)
	s := wire.Ask{ID: a.ID, Limit: &l.bans.strikes, Partition: a.Partition, Global: a.Global, Bans: true, Units: 1, Ban: l.bans.lengths}
	l.node.checks.Strike(s, func(ban time.Duration) {
		l.meter.Bans.Add(1)
		now := l.node.env.TimeOfDay()
		l.listBan(key, s.ID, now, ban)
		if unlogged, due := l.node.banned.Due(time.Unix(0, now)); due {
			id := identity.Bytes(s.ID)
			l.node.cfg.Logger.Info("banned a key", "limit", l.limit.Name, "id", hex.EncodeToString(id[:]), "for", enum.Duration(ban.Round(time.Second)), "unlogged", unlogged)
		}
	})
}

// listBan lists the ban of a key. since is its begin, 0 if this node has not begun it.
func (l *Limiter) listBan(key string, id bucket.ID, since int64, left time.Duration) {
	now := l.node.env.TimeOfDay()
	l.node.meters.Bans.Add(stats.Ban{Limit: l.limit.Name, ID: identity.Bytes(id), Key: key, Since: since, Until: now + int64(left)}, l.limit.SecretKeys, now)
}

// Bans are bans in the whole cluster.
type Bans struct {
	Bans    []BannedKey // the last to end first
	Missing []string    // names of members that did not answer, or run a release without bans
}

// BannedKey is a key that is banned.
type BannedKey struct {
	Limit  string
	ID     [16]byte  // the ID that Limiter.ID returns, and ResetID accepts
	Key    string    // the key as callers passed it, or its masked text; empty if Known is false
	Known  bool      // a node that answered has the text of the key, and may send it (Node.TopKeys)
	Masked bool      // Key is a masked text, because the key is a secret (Limit.SecretKeys)
	Since  time.Time // zero if the node that began the ban has ended
	Until  time.Time
}

// Bans asks all members for the bans that they have begun, or whose keys they deny. Each member lists at
// most 1,000 bans, as many as fit in 48 KiB, the last to end first. A node that started after a ban lists
// it once it denies the key. The text of keys and the waits for members are as in TopKeys. The error is
// ErrClosed, or that of a ctx that is done.
func (n *Node) Bans(ctx context.Context) (Bans, error) {
	if n.env.Ended() {
		return Bans{}, ErrClosed
	}
	all, missing, err := n.clients.survey.Bans(ctx)
	list := Bans{Missing: missing}
	for _, b := range all {
		k := BannedKey{Limit: b.Limit, ID: b.ID, Key: b.Key, Known: b.Known, Until: time.Unix(0, b.Until), Masked: b.Masked}
		if b.Since > 0 {
			k.Since = time.Unix(0, b.Since)
		}
		list.Bans = append(list.Bans, k)
	}
	return list, err
}
