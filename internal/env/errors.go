package env

import "errors"

// Errors that several parts of a node return to its callers. Package weir exports them.
var (
	ErrClosed      = errors.New("weir: the node is closed")
	ErrExpired     = errors.New("weir: the reservation or hold has expired")
	ErrUnavailable = errors.New("weir: no member that may decide has answered: try again")
)
