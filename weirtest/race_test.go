//go:build race

package weirtest_test

// The race detector has the scheduler pick at random.
const randomScheduler = true
