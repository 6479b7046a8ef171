package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// prover is the user whose quota shows, at every gateway, which rules hold and
// that its count goes on.
const prover = "the-demo"

const (
	// provePath meets the limits of its user and of its address.
	provePath = "/v1/proof"
	// proveWithin is how long the gateways may take to show a change.
	proveWithin = 5 * time.Second
	// provePause is between two requests to one gateway.
	provePause = 20 * time.Millisecond
)

// newToken is a bearer token that nobody guesses.
func newToken() string { return rand.Text() }

// errEnding is that a gateway is not up any more, as the demo ends.
var errEnding = errors.New("the gateway has ended")

// proof is the result of a change of the rules.
type proof struct {
	spent int64         // number of units that the prover got from all gateways
	took  time.Duration // until all gateways decided by the new rules; zero before
}

// reload changes the rules, and waits until every gateway shows the new limit. Before that it
// uses some of the prover's quota, so that there is a count that could be reset.
func (f *fleet) reload() {
	err := f.prove(hourly, proveWithin)
	begun := time.Now()
	if err == nil {
		err = f.rules.write(2, hourlyReloaded)
	}
	if err == nil {
		err = f.prove(hourlyReloaded, proveWithin)
	}
	now := time.Now()

	f.mu.Lock()
	defer f.mu.Unlock()
	f.unproven = false
	switch {
	case errors.Is(err, errEnding):
		return
	case err != nil:
		f.breaks("reload: %v", err)
		f.shown = "not all gateways have shown it"
	default:
		f.version, f.proof.took = 2, now.Sub(begun)
		f.shown = fmt.Sprintf("all gateways grant %s an hour; of a user's %d units none was forgotten", number(hourlyReloaded), f.proof.spent)
	}
	f.happened[len(f.happened)-1].from = begun.UnixNano()
	f.settle(now.UnixNano())
}

// prove asks every gateway, within a time, until it shows the limit that should hold,
// and what is left of it if nothing that was ever granted is forgotten. What has
// been forgotten stays so, and no further request makes it right.
func (f *fleet) prove(limit int64, within time.Duration) error {
	f.mu.Lock()
	all := slices.DeleteFunc(slices.Clone(f.current), func(inc *incarnation) bool { return inc == nil || inc.is(gone) })
	f.mu.Unlock()
	deadline := time.Now().Add(within)
	for _, inc := range all {
		for {
			shown, left, err := f.quota(inc)
			if err != nil {
				return err
			}
			if shown == limit && left == limit-f.proof.spent {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("gateway %d says after %v that %d are left of %d an hour: it should be %d of %d",
					inc.gateway+1, within, left, shown, limit-f.proof.spent, limit)
			}
			select {
			case <-time.After(provePause):
			case <-inc.over:
				return errEnding
			}
		}
	}
	return nil
}

// quota asks a gateway for the prover, and reads its quota from the answer.
func (f *fleet) quota(inc *incarnation) (limit, left int64, err error) {
	response, _, err := inc.request(context.Background(), http.MethodGet, inc.url()+provePath, "", http.Header{userHeader: {prover}})
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if inc.is(stopped) {
			return 0, 0, errEnding
		}
		return 0, 0, fmt.Errorf("gateway %d: %w", inc.gateway+1, err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		f.proof.spent++
	case http.StatusTooManyRequests:
	default:
		return 0, 0, fmt.Errorf("gateway %d answered %s", inc.gateway+1, response.Status)
	}
	item := func(field, parameter string) (n int64) { // 0 if it is not there
		_, value, _ := strings.Cut(response.Header.Get(field), `"`+hourLimit+`";`+parameter+"=")
		_, _ = fmt.Sscan(value, &n)
		return n
	}
	return item("RateLimit-Policy", "q"), item("RateLimit", "r"), nil
}
