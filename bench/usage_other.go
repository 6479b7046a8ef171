//go:build !unix

package main

import (
	"errors"
	"time"
)

func usage() (time.Duration, int64, error) {
	return 0, 0, errors.New("bench: -sizing needs getrusage: run it on a Unix")
}
