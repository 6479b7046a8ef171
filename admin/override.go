package admin

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/enum"
	"github.com/weir-go/weir/rules"
)

// overrideAnswer is an override. ID stands for the key, whose text is not published.
type overrideAnswer struct {
	Limit string `json:"limit"`
	ID    string `json:"id"`
	Rate  int64  `json:"rate"`
	Per   string `json:"per,omitempty"`
	Burst int64  `json:"burst,omitempty"`
	controlAnswer

	NotReached []string `json:"not_reached,omitempty"` // members that did not reset the count
}

func showOverride(o rules.Override) *overrideAnswer {
	a := &overrideAnswer{Limit: o.Limit, ID: hex.EncodeToString(o.ID[:]), Rate: o.Rate, Burst: o.Burst, controlAnswer: showControl(&o.Control)}
	if o.Per != 0 {
		a.Per = enum.Duration(o.Per)
	}
	return a
}

type overridesAnswer struct {
	Overrides []*overrideAnswer `json:"overrides"`
}

// overrides lists the overrides in force.
func (a *api) overrides(*request) (int, any, error) {
	return http.StatusOK, overridesAnswer{showAll(a.book.Overrides(), showOverride)}, nil
}

// Values of the field used of an override: the used units of the key stay, or the count of the key is deleted.
const (
	keepUsed  = "keep"
	resetUsed = "reset"
)

// setOverride sets the override of a key. If the request also deletes the count, the override is in force on
// this node first. So a client can repeat the request if members were not reached.
func (a *api) setOverride(r *request) (int, any, error) {
	var (
		limit, key string
		used       = keepUsed
		o          rules.Override
	)
	if err := r.body(append([]field{
		{name: "limit", into: &limit, required: true}, {name: "key", into: &key, required: true, most: maxKeyBytes},
		{name: "rate", into: &o.Rate, required: true, most: maxUnits}, {name: "per", into: &o.Per}, {name: "burst", into: &o.Burst, most: maxUnits},
		{name: "used", into: &used},
	}, r.controlFields(&o.Control)...)...); err != nil {
		return 0, nil, err
	}
	l, err := findLimit(r.rules, limit)
	if err != nil {
		return 0, nil, err
	}
	var wrong faults
	wrong.checkNumbers(l.ForTier(""), o)
	switch {
	case used != keepUsed && used != resetUsed:
		wrong.add("used is %q: use keep or reset", shorten(used))
	case used == resetUsed && l.InFlight():
		wrong.add("used is reset, and %s is in_flight: leave used out, because its units come back when holds end", l.Name)
	}
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
	answer := showOverride(set)
	a.log.Info("an operator set an override", controlAttributes(&o.Control, r, "limit", limit, "id", answer.ID, "rate", o.Rate)...)
	if used == resetUsed {
		if answer.NotReached, err = a.resetCount(r, limit, key); err != nil {
			return 0, nil, err
		}
		if len(answer.NotReached) > 0 {
			return http.StatusMultiStatus, answer, nil
		}
	}
	return http.StatusOK, answer, nil
}

// checkNumbers adds faults for the numbers of an override that its limit cannot have.
func (w *faults) checkNumbers(l weir.Limit, o rules.Override) {
	const shortest, longest = time.Millisecond, 366 * 24 * time.Hour
	if o.Rate == 0 {
		if o.Per != 0 || o.Burst != 0 {
			w.add("per or burst is set, and rate 0 blocks the key: leave per and burst out")
		}
		return
	}
	if l.Rate = o.Rate; l.Algorithm == weir.SlidingLog && o.Rate <= maxUnits && l.Validate() != nil {
		w.add("rate is %d: a sliding_log keeps each unit, and has a lower bound; lower the rate", o.Rate)
	}
	switch {
	case o.Per == 0:
	case l.Algorithm == weir.InFlight:
		w.add("per is %s, and %s is in_flight: leave per out, because its units come back when holds end", enum.Duration(o.Per), l.Name)
	case l.Calendar != weir.NoCalendar:
		w.add("per is %s, and %s has windows of a calendar %v: leave per out", enum.Duration(o.Per), l.Name, l.Calendar)
	case o.Per < shortest || o.Per > longest:
		w.add("per is %s: use %s to %s", enum.Duration(o.Per), enum.Duration(shortest), enum.Duration(longest))
	default:
		l.Per = o.Per
	}
	l.Burst, l.Keep = 0, 0
	switch isGood := *w == nil && l.Validate() == nil; {
	case o.Burst == 0:
	case l.Algorithm != weir.TokenBucket && l.Algorithm != weir.LeakyBucket:
		w.add("burst is %d, and %s is a %v: leave burst out, because only token_bucket and leaky_bucket have a burst", o.Burst, l.Name, l.Algorithm)
	case isGood:
		if l.Burst = o.Burst; l.Validate() != nil {
			w.add("burst is %d: at %d per %s it takes more than 100 years to refill; lower it", o.Burst, o.Rate, enum.Duration(l.Per))
		}
	}
}

// deleteOverride removes the override of a key, or of an id from the list of overrides.
func (a *api) deleteOverride(r *request) (int, any, error) {
	limit, _, raw, err := r.readKey("override")
	if err != nil {
		return 0, nil, err
	}
	if err := a.book.RestoreID(limit, raw); err != nil {
		return 0, nil, err
	}
	a.log.Info("an operator removed an override", "limit", limit, "id", hex.EncodeToString(raw[:]), "client", r.by, "addr", r.RemoteAddr)
	return http.StatusNoContent, nil, nil
}

// readKey reads the parameters limit, and key or id. The argument what names the value of the key that the
// request changes, for messages. If the request has a key, readKey also returns the ID of the key.
func (r *request) readKey(what string) (limit, key string, id [16]byte, err error) {
	err = r.parameters(field{name: "limit", into: &limit, required: true}, field{name: "key", into: &key, most: maxKeyBytes}, field{name: "id", into: &id})
	hasKey := r.URL.Query().Has("key")
	switch {
	case err != nil:
	case hasKey == r.URL.Query().Has("id"):
		err = refuse(http.StatusBadRequest, "name the %s: send key, or the id from the list", what)
	case hasKey:
		var l *rules.Limit
		if l, err = findLimit(r.rules, limit); err == nil {
			id = r.rules.Limiter(l, "", key).ID(key)
		}
	}
	return limit, key, id, err
}

// resetAnswer names the members that a reset did not reach. They may still have the count.
type resetAnswer struct {
	NotReached []string `json:"not_reached"`
}

// deleteCount resets the count of a key, and its count in the overrun of the rule.
func (a *api) deleteCount(r *request) (int, any, error) {
	var limit, key string
	err := r.parameters(field{name: "limit", into: &limit, required: true}, field{name: "key", into: &key, required: true, most: maxKeyBytes})
	if err != nil {
		return 0, nil, err
	}
	notReached, err := a.resetCount(r, limit, key)
	if err != nil {
		return 0, nil, err
	}
	return showReset(notReached)
}

// showReset returns the answer to a reset.
func showReset(notReached []string) (status int, answer any, err error) {
	status = http.StatusOK
	if len(notReached) > 0 {
		status = http.StatusMultiStatus
	}
	return status, resetAnswer{append([]string{}, notReached...)}, nil
}

// findLimiters returns the Limiters that count a key under a limit of the rules or of check. If the rule has an
// overrun, the second Limiter counts the overrun.
func (a *api) findLimiters(limit, key string) ([]*weir.Limiter, error) {
	if strings.HasPrefix(limit, checkPrefix) {
		if most := len(checkPrefix) + maxCheckNameBytes; len(limit) > most {
			return nil, refuse(http.StatusBadRequest, "limit has %d bytes: use at most %d", len(limit), most)
		}
		l, err := a.node.Limiter(weir.Limit{Name: limit, Rate: 1, Per: time.Second, Varies: true})
		return []*weir.Limiter{l}, err
	}
	s, err := a.currentRules()
	if err != nil {
		return nil, err
	}
	l, err := findLimit(s, limit)
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

const resetTimeout = 5 * time.Second

// reset resets the count of an ID, and returns the members that it did not reach.
func reset(ctx context.Context, l *weir.Limiter, id [16]byte) (notReached []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	err = l.ResetID(ctx, id)
	if partial, ok := errors.AsType[*weir.ErrPartial](err); ok {
		return partial.Members, nil
	}
	return nil, err
}
