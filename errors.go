package weir

import (
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/queue"
	"github.com/weir-go/weir/internal/reserve"
)

// Errors of Start and of the methods of a Node and a Limiter, to compare with errors.Is.
var (
	ErrInvalid = errors.New("weir: invalid") // an invalid argument; the message names the argument or the field, and the remedy
	ErrClosed  = env.ErrClosed               // Close was called
	ErrFull    = queue.ErrFull               // Wait found no room for the units in the queue of a LeakyBucket
)

// Errors of a Reservation or a hold that has ended, or that cannot be settled or renewed now.
var (
	ErrSettled     = reserve.ErrSettled // the Reservation was already settled or cancelled
	ErrExpired     = env.ErrExpired     // it is too late to settle the Reservation, and its estimate stays spent; or the hold was released, or not renewed in time
	ErrUnavailable = env.ErrUnavailable // no member that may decide has answered; try again
)

// invalid returns the problems of a value as an error that is ErrInvalid, or nil if there are none.
func invalid(value string, problems ...error) error {
	for i, problem := range problems {
		problems[i] = fmt.Errorf("%w %s: %w", ErrInvalid, value, problem)
	}
	return errors.Join(problems...)
}
