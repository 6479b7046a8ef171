package admin

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/rules"
)

// overrideAnswer is an override as the API shows it.
type overrideAnswer struct {
	Limit string     `json:"limit"`
	ID    string     `json:"id"`
	Rate  int64      `json:"rate"`
	Per   string     `json:"per,omitempty"`
	Burst int64      `json:"burst,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	By    string     `json:"by,omitempty"`
	At    time.Time  `json:"at"`
}

func answerOf(o rules.Override) *overrideAnswer {
	a := &overrideAnswer{Limit: o.Limit, ID: hex.EncodeToString(o.ID[:]), Rate: o.Rate, Burst: o.Burst, By: o.By, At: o.At.UTC()}
	if o.Per != 0 {
		a.Per = enum.Duration(o.Per)
	}
	if !o.Until.IsZero() {
		until := o.Until.UTC()
		a.Until = &until
	}
	return a
}

type overridesAnswer struct {
	Overrides []*overrideAnswer `json:"overrides"`
}

func (a *admin) overrides(*adminRequest) (int, any, error) {
	all := a.book.Overrides()
	answer := overridesAnswer{make([]*overrideAnswer, len(all))}
	for i, o := range all {
		answer.Overrides[i] = answerOf(o)
	}
	return http.StatusOK, answer, nil
}

func (a *admin) setOverride(r *adminRequest) (int, any, error) {
	var (
		limit, key string
		o          rules.Override
	)
	if err := r.body(
		adminField{name: "limit", into: &limit, required: true}, adminField{name: "key", into: &key, required: true},
		adminField{name: "rate", into: &o.Rate, required: true}, adminField{name: "per", into: &o.Per},
		adminField{name: "burst", into: &o.Burst}, adminField{name: "until", into: &o.Until}, adminField{name: "by", into: &o.By},
	); err != nil {
		return 0, nil, err
	}
	l, err := adminLimit(r.rules, limit)
	if err != nil {
		return 0, nil, err
	}
	if o.By == "" {
		o.By = adminShort(r.by)
	}
	wrong := overrideWrongs(key, o, time.Now())
	wrong.numbers(l.For(""), o)
	if err := wrong.err(); err != nil {
		return 0, nil, err
	}
	if err := a.book.Override(limit, key, o); err != nil {
		return 0, nil, err
	}
	set, ok := a.book.OverrideOf(limit, key)
	if !ok {
		return 0, nil, errors.New("the override was set, and another request removed it at once")
	}
	answer := answerOf(set)
	until := "forever"
	if !o.Until.IsZero() {
		until = o.Until.UTC().Format(time.RFC3339Nano)
	}
	a.log.Info("override set", "limit", limit, "id", answer.ID, "rate", o.Rate, "until", until, "by", o.By, "client", r.by, "addr", r.RemoteAddr)
	return http.StatusOK, answer, nil
}

// overrideWrongs finds what is wrong with an override whatever its limit.
func overrideWrongs(key string, o rules.Override, now time.Time) (wrong adminWrongs) {
	wrong.key(key)
	wrong.between("rate", o.Rate, 1, adminMaxUnits)
	wrong.between("burst", o.Burst, 0, adminMaxUnits)
	if !o.Until.IsZero() && !o.Until.After(now) {
		wrong.add("until is %s: it is past", o.Until.UTC().Format(time.RFC3339))
	}
	if len(o.By) > adminMaxBy {
		wrong.add("by has %d bytes: use at most %d", len(o.By), adminMaxBy)
	}
	return wrong
}

// numbers records which numbers of an override its limit cannot have, in the fields of the request.
func (w *adminWrongs) numbers(l weir.Limit, o rules.Override) {
	const shortest, longest = time.Millisecond, 366 * 24 * time.Hour
	if l.Rate = o.Rate; l.Algorithm == weir.SlidingLog && o.Rate <= adminMaxUnits && l.Validate() != nil {
		w.add("rate is %d: a sliding_log keeps each unit, and has a lower bound; lower the rate", o.Rate)
	}
	switch {
	case o.Per == 0:
	case l.Algorithm == weir.InFlight:
		w.add("per is %s, and %s is in_flight: leave it out, because its units come back as holds end", enum.Duration(o.Per), l.Name)
	case l.Calendar != weir.NoCalendar:
		w.add("per is %s, and %s has windows of a calendar %v: leave it out", enum.Duration(o.Per), l.Name, l.Calendar)
	case o.Per < shortest || o.Per > longest:
		w.add("per is %s: use %s to %s", enum.Duration(o.Per), enum.Duration(shortest), enum.Duration(longest))
	default:
		l.Per = o.Per
	}
	l.Burst = 0
	switch isGood := *w == nil && l.Validate() == nil; {
	case o.Burst == 0:
	case l.Algorithm != weir.TokenBucket && l.Algorithm != weir.LeakyBucket:
		w.add("burst is %d, and %s is a %v: leave it out, because only token_bucket and leaky_bucket have one", o.Burst, l.Name, l.Algorithm)
	case isGood:
		if l.Burst = o.Burst; l.Validate() != nil {
			w.add("burst is %d: at %d per %s it takes more than 100 years to refill; lower it", o.Burst, o.Rate, enum.Duration(l.Per))
		}
	}
}

// limitAndKey reads what a DELETE is about.
func (r *adminRequest) limitAndKey() (limit, key string, err error) {
	err = r.parameters(adminField{name: "limit", into: &limit, required: true}, adminField{name: "key", into: &key, required: true})
	if err == nil {
		var wrong adminWrongs
		wrong.key(key)
		err = wrong.err()
	}
	return limit, key, err
}

// deleteOverride takes back the override of a key, or one that the list shows.
func (a *admin) deleteOverride(r *adminRequest) (int, any, error) {
	var limit, key, id string
	if err := r.parameters(adminField{name: "limit", into: &limit, required: true}, adminField{name: "key", into: &key}, adminField{name: "id", into: &id}); err != nil {
		return 0, nil, err
	}
	var raw [16]byte
	switch hasKey, hasID := r.URL.Query().Has("key"), r.URL.Query().Has("id"); {
	case hasKey == hasID:
		return 0, nil, adminRefusal(http.StatusBadRequest, "name the override: send key, or the id from the list")
	case hasID:
		given, err := hex.DecodeString(id)
		if err != nil || len(given) != len(raw) {
			return 0, nil, adminRefusal(http.StatusBadRequest, "id is %q: use the 32 hexadecimal digits from the list", adminShort(id))
		}
		copy(raw[:], given)
	default:
		var wrong adminWrongs
		if wrong.key(key); wrong != nil {
			return 0, nil, wrong.err()
		}
		l, err := adminLimit(r.rules, limit)
		if err != nil {
			return 0, nil, err
		}
		raw = r.rules.Limiter(l, "", key).ID(key)
	}
	if err := a.book.RestoreID(limit, raw); err != nil {
		return 0, nil, err
	}
	a.log.Info("override removed", "limit", limit, "id", hex.EncodeToString(raw[:]), "client", r.by, "addr", r.RemoteAddr)
	return http.StatusNoContent, nil, nil
}

// resetAnswer names the members that may still hold the count.
type resetAnswer struct {
	NotReached []string `json:"not_reached"`
}

// deleteCount forgets a count, and that of the overrun that its rule allows.
func (a *admin) deleteCount(r *adminRequest) (int, any, error) {
	limit, key, err := r.limitAndKey()
	if err != nil {
		return 0, nil, err
	}
	limiters, err := a.limitersOf(limit, key)
	if err == nil {
		err = r.checkKind(limiters[0].Limit())
	}
	if err != nil {
		return 0, nil, err
	}
	answer := resetAnswer{NotReached: []string{}}
	for _, l := range limiters {
		var partial *weir.ErrPartial
		switch err := adminReset(r.Context(), l, key); {
		case errors.As(err, &partial):
			answer.NotReached = append(answer.NotReached, partial.Members...)
		case err != nil:
			return 0, nil, err
		}
	}
	slices.Sort(answer.NotReached)
	answer.NotReached = slices.Compact(answer.NotReached)
	id := limiters[0].ID(key)
	a.log.Info("count reset", "limit", limit, "id", hex.EncodeToString(id[:]), "not_reached", answer.NotReached, "client", r.by, "addr", r.RemoteAddr)
	if len(answer.NotReached) > 0 {
		return http.StatusMultiStatus, answer, nil
	}
	return http.StatusOK, answer, nil
}

// limitersOf are those that count a key under a limit: of the rules, or of checks.
func (a *admin) limitersOf(limit, key string) ([]*weir.Limiter, error) {
	if strings.HasPrefix(limit, adminCheckPrefix) {
		if most := len(adminCheckPrefix) + adminMaxCheckName; len(limit) > most {
			return nil, adminRefusal(http.StatusBadRequest, "limit has %d bytes: use at most %d", len(limit), most)
		}
		l, err := a.node.Limiter(weir.Limit{Name: limit, Rate: 1, Per: time.Second, Varies: true})
		return []*weir.Limiter{l}, err
	}
	s, err := a.current()
	if err != nil {
		return nil, err
	}
	l, err := adminLimit(s, limit)
	if err != nil {
		return nil, err
	}
	count := s.Count(l, "", key)
	limiters := []*weir.Limiter{count.Limiter}
	if count.Soft != nil {
		limiters = append(limiters, count.Soft)
	}
	return limiters, nil
}

const adminResetPatience = 5 * time.Second

func adminReset(ctx context.Context, l *weir.Limiter, key string) error {
	ctx, cancel := context.WithTimeout(ctx, adminResetPatience)
	defer cancel()
	return l.Reset(ctx, key)
}
