package envoylimit

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir"
)

const (
	// maxReleases bounds the number of pending releases. Further estimates that are not
	// committed stay spent until their windows end.
	maxReleases = 1 << 14
	// releaseSlack is the time between the deadline of a reservation and its release. So,
	// after the release, the deadline has also passed for a node whose clock is behind by
	// at most releaseSlack.
	releaseSlack = time.Second
	// releaseWait is how long a release may wait for other nodes.
	releaseWait = time.Second
	// maxTTL is the longest time for which a weir.Reservation can be settled. A ttl of
	// maxTTL or more schedules no release.
	maxTTL = time.Hour
)

// releases returns the units of reservations that are not committed within their ttl. A
// goroutine runs only during a release. The end of the process discards pending releases.
type releases struct {
	mu  sync.Mutex
	due map[string]*time.Timer // keyed by reservation_id
}

// add schedules the release of the reservations after ttl and releaseSlack. It does nothing if maxReleases
// releases are pending.
func (r *releases) add(id string, all []*weir.Reservation, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.due) >= maxReleases {
		return
	}
	if r.due == nil {
		r.due = make(map[string]*time.Timer)
	}
	r.due[id] = time.AfterFunc(ttl+releaseSlack, func() {
		r.remove(id)
		ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
		defer cancel()
		for _, v := range all {
			if v != nil {
				_ = v.Cancel(ctx) // fails if the reservation was committed. After any other failure, the estimate stays spent
			}
		}
	})
}

// remove cancels the release of a reservation.
func (r *releases) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if due := r.due[id]; due != nil {
		due.Stop()
		delete(r.due, id)
	}
}

// ttlMark is the first character of a reservation_id that has a deadline. The text of a
// reservation never begins with this character.
const ttlMark = "~"

// withDeadline returns the reservation_id of texts that are released after the given
// time.
func withDeadline(texts string, at time.Time) string {
	return ttlMark + strconv.FormatInt(at.UnixMilli(), 36) + textSeparator + texts
}

// cutDeadline returns the texts of a reservation_id, and whether they may have been
// released. A client that forges the deadline spends no more than with Report.
func cutDeadline(id string, now time.Time) (texts string, overdue bool) {
	deadline, marked := strings.CutPrefix(id, ttlMark)
	if !marked {
		return id, false
	}
	deadline, texts, _ = strings.Cut(deadline, textSeparator)
	at, err := strconv.ParseInt(deadline, 36, 64)
	return texts, err == nil && now.UnixMilli() >= at
}

// ttlOf returns the ttl of a request, and 0 for a request without a ttl.
func ttlOf(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	ttl := d.AsDuration()
	if d.CheckValid() != nil || ttl < 0 {
		return 0, errNegativeTTL
	}
	return ttl, nil
}
