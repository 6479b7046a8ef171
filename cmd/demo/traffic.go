package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
)

const (
	clients = 200
	// zipf is the exponent of how often clients ask: the n-th as often as
	// 1/(n+1)^zipf. The first of 200 makes a quarter of all requests.
	zipf = 1.1
	// workers is how many requests are under way at once, at most.
	workers = 64
	// giveUp is how long a client waits for an answer.
	giveUp = 2 * time.Second
)

func clientName(client int) string { return fmt.Sprintf("client-%03d", client+1) }

// clientOf is the client that has a name, -1 if none has.
func clientOf(name string) int {
	for client := range clients {
		if clientName(client) == name {
			return client
		}
	}
	return -1
}

// answer is what became of one request.
type answer struct {
	to         *incarnation
	client     int
	sent, done int64         // Unix nanoseconds
	took       time.Duration // by a clock that does not step
	check      span          // when the gateway checked
	source     string        // where it was decided
	owner      string        // the member that owns the client's key
	allowed    bool
	err        error // neither 200 nor 429
}

// gaveUp reports whether the client got no answer in time. Such a request stalled.
func (a *answer) gaveUp() bool {
	var e net.Error
	return errors.As(a.err, &e) && e.Timeout()
}

// answers is where all that clients are answered goes.
type answers interface {
	add(answer)
	miss(requests int)
}

// drive sends rate requests a second through the fleet's gateways until ctx is
// done, and returns when all have been answered. What cannot be sent in time,
// because all workers wait, is not sent at all.
func drive(ctx context.Context, f *fleet, t answers, rate int, seed uint64) {
	pace(ctx, rate, seed, t.miss, func(random *rand.Rand) func() {
		chosen := rand.NewZipf(random, zipf, 1, clients-1)
		return func() {
			if to := f.pick(random); to != nil {
				t.add(request(f, to, int(chosen.Uint64())))
			}
		}
	})
}

// pace has workers do what newWorker makes for each of them, rate times a second
// all together, until ctx is done, and returns when all have. What cannot be done
// in time, because all wait, is missed.
func pace(ctx context.Context, rate int, seed uint64, miss func(int), newWorker func(*rand.Rand) func()) {
	var wait sync.WaitGroup
	defer wait.Wait()
	begin, pause := time.Now(), time.Duration(workers)*time.Second/time.Duration(rate)
	for w := range workers {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)+1))
			work := newWorker(random)
			next := begin.Add(pause * time.Duration(w) / workers)
			timer := time.NewTimer(0)
			defer timer.Stop()
			for {
				timer.Reset(time.Until(next))
				select {
				case <-timer.C:
				case <-ctx.Done():
					return
				}
				work()
				next = next.Add(pause)
				if behind := time.Since(next); behind > pause {
					missed := behind / pause
					miss(int(missed))
					next = next.Add(missed * pause)
				}
			}
		})
	}
}

// request asks one gateway for one client.
func request(f *fleet, to *incarnation, client int) answer {
	a := ask(f, to, "/", clientName(client))
	a.client = client
	return a
}

// ask asks one gateway for somebody.
func ask(f *fleet, to *incarnation, path, who string) answer {
	a := answer{to: to}
	r, err := http.NewRequest(http.MethodGet, f.url(to)+path, nil)
	if err != nil {
		a.err = err
		return a
	}
	r.Header.Set(clientHeader, who)
	sent := time.Now()
	a.sent = sent.UnixNano()
	response, err := to.client.Do(r)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	a.took = time.Since(sent)
	a.done = time.Now().UnixNano()
	if a.err = err; err == nil {
		a.err = a.read(response)
	}
	return a
}

var errNoTimes = errors.New("the answer does not say when it was checked")

// read takes the answer from a response.
func (a *answer) read(response *http.Response) error {
	switch response.StatusCode {
	case http.StatusOK:
		a.allowed = true
	case http.StatusTooManyRequests:
	default:
		return fmt.Errorf("status %s", response.Status)
	}
	a.source = response.Header.Get(decidedHeader)
	a.owner = response.Header.Get(ownerHeader)
	from, to, _ := strings.Cut(response.Header.Get(checkedHeader), " ")
	var err, err2 error
	a.check.from, err = strconv.ParseInt(from, 10, 64)
	a.check.to, err2 = strconv.ParseInt(to, 10, 64)
	if err != nil || err2 != nil || a.source == "" {
		return errNoTimes
	}
	return nil
}

// place is where a decision was made, as the table shows it.
type place uint8

const (
	own        place = iota // the gateway owns the client's key
	asked                   // by the owner, which it asked
	stoodIn                 // by the stand-in, for an owner that was not reached
	budget                  // within a share of the limit: no copy of the count was reached
	fromMemory              // by the gateway: denied, as the owner had within the last second, or of what the owner had lent to it
	places
)

// elsewhereAt says that a decision there was not made by who has authority.
func elsewhereAt(at place) bool { return at == stoodIn || at == budget }

func placeOf(source string) place {
	switch source {
	case weir.Owner.String():
		return own
	case weir.Forwarded.String(), weir.Relayed.String():
		return asked
	case weir.StandIn.String():
		return stoodIn
	case weir.Pushback.String(), weir.Leased.String():
		return fromMemory
	}
	return budget
}
