package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

const (
	clients = 200
	// zipf is the exponent of the frequency of clients: client n, counted from 0, sends
	// requests in proportion to 1/(n+1)^zipf. The first of 200 sends about a fifth of all.
	zipf = 1.1
	// workers is the maximum number of requests in progress at the same time.
	workers = 64
	// giveUp is how long a client waits for an answer.
	giveUp = 2 * time.Second
)

func clientName(client int) string { return fmt.Sprintf("client-%03d", client+1) }

// clientOf returns the number, from 0, of the client with a name, or -1 if there is none.
func clientOf(name string) int {
	var number int
	if _, err := fmt.Sscanf(name, "client-%d", &number); err != nil || number > clients || clientName(number-1) != name {
		return -1
	}
	return number - 1
}

type answer struct {
	account
	to         *incarnation
	sent, done int64  // Unix nanoseconds
	check      span   // time of the check at the gateway
	at         place  // where the check was decided
	owner      string // the member that owns the client's key
	allowed    bool
	err        error // set if the request failed, its status was not 200, 204 or 429, or decidedHeader was missing
	down       bool  // whether its gateway was down during a part of the request; set by the tally
}

func (a *answer) waited() span { return lab.Between(a.sent, a.done) }

// hasTimedOut reports whether the client got no answer in time. Such a request stalled.
func (a *answer) hasTimedOut() bool {
	var e net.Error
	return errors.As(a.err, &e) && e.Timeout()
}

// startTraffic sends requests through the gateways until ctx is done or the caller calls
// the function end, which returns when all requests have been answered. A request that cannot be sent in time
// because all workers wait is not sent. m.draw returns for each worker a function that
// draws the account of a request.
func (m *monitor) startTraffic(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	seed, pause := m.options.seed+uint64(m.round)<<32, time.Duration(workers)*time.Second/time.Duration(m.options.rate)
	for w := range workers {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)+1))
			next := m.draw(random)
			lab.Sleep(ctx, pause*time.Duration(w)/workers)
			tick := time.NewTicker(pause) // if the worker is busy, the ticker drops ticks
			defer tick.Stop()
			for last := time.Now(); ; {
				select {
				case <-ctx.Done():
					return
				case now := <-tick.C:
					m.tally.miss(max(0, int((now.Sub(last)+pause/2)/pause)-1))
					last = now
				}
				if of, to := next(), m.pick(random); to != nil {
					m.tally.add(ask(to, of))
				}
			}
		})
	}
	return func() {
		cancel()
		wait.Wait()
	}
}

// drawClient draws some clients far more often than other clients.
func drawClient(random *rand.Rand) func() account {
	chosen := rand.NewZipf(random, zipf, 1, clients-1)
	return func() account { return account{"/", int(chosen.Uint64())} }
}

func ask(to *incarnation, of account) answer {
	a, sent := answer{to: to, account: of}, time.Now()
	response, err := to.get(of.path, http.Header{clientHeader: {clientName(of.client)}})
	a.sent, a.done = sent.UnixNano(), sent.UnixNano()+int64(time.Since(sent)) // uses the monotonic clock, which does not step
	if a.err = err; err == nil {
		a.err = a.read(response)
	}
	return a
}

// maxAnswer is the maximum number of bytes that are read of a gateway's answer.
const maxAnswer = 1 << 20

// get sends a GET request to a path, and returns the answer without its body.
func (inc *incarnation) get(path string, fields http.Header) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodGet, inc.url()+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header = fields
	response, err := inc.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	return response, err
}

// read sets the fields of the answer from a response.
func (a *answer) read(response *http.Response) error {
	switch response.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		a.allowed = true
	case http.StatusTooManyRequests:
	default:
		return fmt.Errorf("the gateway answered with status %s", response.Status)
	}
	var d decided
	if err := json.Unmarshal([]byte(response.Header.Get(decidedHeader)), &d); err != nil || d.Source == "" {
		return errors.New("the header field " + decidedHeader + " of the answer is missing or not valid")
	}
	a.at, a.owner, a.check = placeOf(d.Source), d.Owner, lab.Between(d.From, d.To)
	return nil
}

// place is the place of a decision, as in the table.
type place uint8

const (
	own        place = iota // the gateway owns the client's key
	asked                   // the owner decided, after a request
	stoodIn                 // the stand-in decided, because the owner was not reached
	budget                  // the gateway decided within a share of the limit, because no copy of the count was reached
	fromMemory              // the gateway decided from a denial that the owner made within the last second, or with units that the owner lent to it
	places
)

// elsewhereAt reports whether a decision at a place was made without authority.
func elsewhereAt(at place) bool { return at == stoodIn || at == budget }

var placesOf = map[string]place{
	weir.Owner.String(): own, weir.Forwarded.String(): asked, weir.Relayed.String(): asked, weir.StandIn.String(): stoodIn,
	weir.Pushback.String(): fromMemory, weir.Leased.String(): fromMemory,
}

func placeOf(source string) place {
	if at, ok := placesOf[source]; ok {
		return at
	}
	return budget
}
