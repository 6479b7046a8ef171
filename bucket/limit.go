package bucket

import "time"

// Algorithm says how a limit counts. The zero value is SlidingWindow.
type Algorithm uint8

const (
	// SlidingWindow keeps two counters and estimates the units of the last
	// Per as previous·(the part of it still in the window) + current.
	SlidingWindow Algorithm = iota
	// SlidingLog remembers each admission: exact in every window of Per.
	SlidingLog
	// FixedWindow counts in windows of Per, the first of which starts at the
	// key's first ask.
	FixedWindow
	// TokenBucket holds at most Burst units and refills at Rate per Per.
	TokenBucket
	// LeakyBucket is TokenBucket's arithmetic as a queue: at most Burst units
	// wait, and they are served at Rate per Per.
	LeakyBucket
)

// Limit is the numbers of a limit, all that the arithmetic needs of it.
type Limit struct {
	Algorithm Algorithm
	Rate      int64         // units ...
	Per       time.Duration // ... per this long
	Burst     int64         // capacity of TokenBucket and LeakyBucket; Rate if zero
	Version   uint64        // of the rules it came from; the higher one holds
}
