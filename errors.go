package weir

import (
	"errors"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/reserve"
)

// Errors that checks and Start return, compared with errors.Is. A denial is not
// an error, and neither is an outage: both are Decisions.
var (
	ErrInvalid = errors.New("weir: invalid")            // the caller's mistake; the message names field and value
	ErrClosed  = errors.New("weir: the node is closed") // Close was called
	ErrFull    = errors.New("weir: the queue is full")  // Wait on a LeakyBucket with Burst waiting
)

// Errors of a Reservation or a hold that is used after its end, or cannot be settled or renewed now.
var (
	ErrSettled     = reserve.ErrSettled     // the Reservation was settled or cancelled before
	ErrExpired     = reserve.ErrExpired     // the estimate stays spent, or the hold has ended
	ErrUnavailable = reserve.ErrUnavailable // no majority of the members answers: try again
)

// ErrPartial is the error of a Reset that did not reach every member of the
// roster, or every region. Those that are named may still hold a count for the key.
type ErrPartial struct {
	Members []string // names, sorted; and then each other region that was not reached, as "region NAME"
}

func (e *ErrPartial) Error() string {
	return "weir: reset did not reach " + strconv.Itoa(len(e.Members)) + " member(s): " +
		strings.Join(e.Members, ", ") + "; reset again when they are back, or Forget them"
}
