package check

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/internal/identity"
	"github.com/weir-go/weir/internal/stats"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Meter has the counters of a limit, and the numbers of its bans.
type Meter struct {
	*stats.Limit              // shared by all limits of the name
	SecretKeys   bool         // only the masked text of a key may be kept
	Strikes      bucket.Limit // the denials that ban a key; with a Rate of 0, no key is banned
	BanLengths   wire.Ban
}

// Subject is the key of a limit that a caller checks.
type Subject struct {
	*Meter
	Key    string
	Shadow bool // the caller does not enforce the decision
}

// Count counts the decision r about the ask a, and measures a sample of the decisions.
func (c *Checks) Count(s Subject, a *wire.Ask, r *wire.Result) {
	if weight := s.CountDecision(a.ID, r, s.Shadow); weight > 0 {
		c.measure(s, a, r, weight)
	}
}

// measure adds the duration and the key of a decision to the statistics, with the given weight, unless the
// limit is stats.Uncounted. If the key is banned, measure lists the ban.
func (c *Checks) measure(s Subject, a *wire.Ask, r *wire.Result, weight uint64) {
	if a.Name == stats.Uncounted {
		return
	}
	now := c.Env.Monotonic()
	c.Meters.RecordDuration(r.Source, time.Duration(max(0, now-a.Began)), weight)
	c.Meters.TopKeys.Add(identity.Bytes(a.ID), a.Name, s.Key, s.SecretKeys, r.Allowed, weight, now)
	if r.Banned && !r.Paused {
		c.listBan(s, a, 0, r.RetryAfter)
	}
}

// Strike counts a decision of a limit with bans toward a ban, unless the decision allows, was made within a
// share, denies a banned key or is not enforced. Strike does not wait: unless this node has authority over the
// count, a goroutine counts the denial. The denial may not be counted if too many goroutines run, or if the
// member that answers for the count does not respond.
func (c *Checks) Strike(s Subject, denied *wire.Ask, r *wire.Result) {
	if r.Allowed || r.Banned || s.Shadow || denied.Shadow || r.Source == 0 || r.Source.IsShare() {
		return
	}
	s.Key = strings.Clone(s.Key)
	a := &wire.Ask{ID: denied.ID, Name: denied.Name, Limit: &s.Strikes, Partition: denied.Partition, Global: denied.Global, BansKeys: true, Units: 1, Ban: s.BanLengths}
	v, now := c.Env.View(), c.Env.Now()
	if as, _ := c.place(v, v.Route(a.ID, c.Env.MonotonicAt(now)), now); as == view.AsOwner {
		var struck wire.Result
		c.execute(v, as, wire.OpStrike, a, now, &struck)
		c.recordBan(s, a, &struck)
		return
	}
	c.Env.Try(func(ctx context.Context) {
		var struck wire.Result
		if c.Do(ctx, wire.OpStrike, a, &struck) == nil {
			c.recordBan(s, a, &struck)
		}
	})
}

// recordBan counts, lists and logs a ban, if the strike a has begun one. The log lines are limited.
func (c *Checks) recordBan(s Subject, a *wire.Ask, struck *wire.Result) {
	if struck.Granted == 0 {
		return
	}
	s.BansBegun.Add(1)
	now := c.Env.TimeOfDay()
	c.listBan(s, a, now, struck.RetryAfter)
	if unlogged, due := c.banLines.Due(time.Unix(0, now)); due {
		id := identity.Bytes(a.ID)
		c.Log.Info("banned a key", "limit", a.Name, "id", hex.EncodeToString(id[:]), "for", enum.Duration(struck.RetryAfter.Round(time.Second)), "unlogged", unlogged)
	}
}

// listBan adds the ban of a key to the list of bans. The argument since is the time at which a strike of this
// node began the ban, or 0 for a ban that a decision shows.
func (c *Checks) listBan(s Subject, a *wire.Ask, since int64, left time.Duration) {
	now := c.Env.TimeOfDay()
	c.Meters.BanList.Add(stats.Ban{Limit: a.Name, ID: identity.Bytes(a.ID), Key: s.Key, Since: since, Until: now + int64(left)}, s.SecretKeys, now)
}
