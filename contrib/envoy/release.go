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
	// maxReleases bounds the reservations that wait for their release. Beyond it estimates
	// that nobody commits stay spent until their windows end.
	maxReleases = 1 << 14
	// releaseSlack is how much later than its deadline a reservation is released, so that
	// a node whose clock is that much behind knows that the deadline has passed.
	releaseSlack = time.Second
	// releaseWait is how long a release may wait for other nodes.
	releaseWait = time.Second
	// maxTTL is the longest life of a reservation.
	maxTTL = time.Hour
)

// releases gives back the reservations that nobody has committed within their ttl. It has no
// goroutine but while it does so. What it waits for is lost with the process.
type releases struct {
	mu  sync.Mutex
	due map[string]*time.Timer // by reservation_id
}

// add releases what was reserved once ttl has passed.
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
				_ = v.Cancel(ctx) // it may be committed; if this fails, the estimate stays spent
			}
		}
	})
}

// remove forgets a reservation that was committed.
func (r *releases) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if due := r.due[id]; due != nil {
		due.Stop()
		delete(r.due, id)
	}
}

// ttlMark begins a reservation_id that has a deadline, which no text begins with.
const ttlMark = "~"

// withDeadline returns the reservation_id of texts that are released at a time.
func withDeadline(texts string, at time.Time) string {
	return ttlMark + strconv.FormatInt(at.UnixMilli(), 36) + textSeparator + texts
}

// cutDeadline returns the texts of a reservation_id, and whether they may be released. A
// client that makes the deadline up spends no more than by Report.
func cutDeadline(id string, now time.Time) (texts string, overdue bool) {
	deadline, marked := strings.CutPrefix(id, ttlMark)
	if !marked {
		return id, false
	}
	deadline, texts, _ = strings.Cut(deadline, textSeparator)
	at, err := strconv.ParseInt(deadline, 36, 64)
	return texts, err == nil && now.UnixMilli() >= at
}

// ttlOf returns 0 for a request that has no ttl.
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
