package weir

import (
	"errors"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/reserve"
)

// Errors of Start and of the methods of a Node and a Limiter, to compare with errors.Is.
var (
	ErrInvalid = errors.New("weir: invalid")            // an invalid argument; the message names the argument or the field, and the remedy
	ErrClosed  = errors.New("weir: the node is closed") // Close was called
	ErrFull    = errors.New("weir: the queue is full")  // Wait found no room for the units in the queue of a LeakyBucket
)

// Errors of a Reservation or a hold that has ended, or that cannot be settled or renewed now.
var (
	ErrSettled     = reserve.ErrSettled     // the Reservation was already settled or cancelled
	ErrExpired     = reserve.ErrExpired     // it is too late to settle the Reservation, and its estimate stays spent; or the hold was released, or not renewed in time
	ErrUnavailable = reserve.ErrUnavailable // no member that may decide has answered; try again
)

// ErrPartial is the error of a Reset that did not reach every member of the roster, or for a Global
// limit every region. The named members may still have a count of the key.
type ErrPartial struct {
	Members []string // sorted names, followed by the other regions that were not reached, as "region NAME"
}

func (e *ErrPartial) Error() string {
	return "weir: reset did not reach " + strconv.Itoa(len(e.Members)) + " member(s): " +
		strings.Join(e.Members, ", ") + "; reset again when they are back, or Forget them"
}
