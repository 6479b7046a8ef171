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

// proof is what was shown of changes of the rules, and with which count.
type proof struct {
	spent int64                  // units that the prover was granted by all gateways
	took  map[kind]time.Duration // until all decided by the change
}

// change has the rules changed, or overridden, and every gateway show what holds then. Before
// that some of the prover's quota is used, so that there is a count that could be reset.
func (f *fleet) change(k kind) {
	was, to, text, does := int64(hourly), int64(hourlyReloaded), "all gateways grant %s an hour; of a user's %d units none was forgotten",
		func() error { return f.rules.write(2, hourlyReloaded) }
	if k == override {
		was, to, text, does = hourlyReloaded, hourlyGranted, "all gateways grant that user %s an hour, less the %d units that it has used", f.override
	}
	err := f.prove(was, proveWithin)
	begun := time.Now()
	if err == nil {
		err = does()
	}
	if err == nil {
		err = f.prove(to, proveWithin)
	}
	now := time.Now()

	f.mu.Lock()
	defer f.mu.Unlock()
	f.unproven = false
	switch {
	case errors.Is(err, errEnding):
		return
	case err != nil:
		f.breaks("%v: %v", k, err)
		f.shown = "not all gateways have shown it"
	case k == reload:
		f.version = 2
	default:
		f.overrides++
	}
	if err == nil {
		f.shown, f.proof.took[k] = fmt.Sprintf(text, number(int(to)), f.proof.spent), now.Sub(begun)
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
	response, err := f.call(inc, http.MethodGet, inc.url()+provePath, "", http.Header{userHeader: {prover}})
	if err != nil {
		return 0, 0, err
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

// override has one gateway's admin API give the prover a quota of its own.
func (f *fleet) override() error {
	f.mu.Lock()
	first := f.current[0]
	f.mu.Unlock()
	body := fmt.Sprintf(`{"limit": %q, "key": %q, "rate": %d, "by": "the demo"}`, hourLimit, prover, hourlyGranted)
	response, err := f.call(first, http.MethodPost, first.adminURL()+"/v1/overrides", body,
		http.Header{"Authorization": {"Bearer " + f.token}, "Content-Type": {"application/json"}})
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the admin API of gateway %d answered %s", first.gateway+1, response.Status)
	}
	return err
}

// call makes a request. The error is errEnding if the gateway is to end.
func (f *fleet) call(inc *incarnation, method, url, body string, fields http.Header) (*http.Response, error) {
	response, _, err := inc.request(context.Background(), method, url, body, fields)
	if err == nil {
		return response, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if inc.is(stopped) {
		return nil, errEnding
	}
	return nil, fmt.Errorf("gateway %d: %w", inc.gateway+1, err)
}
