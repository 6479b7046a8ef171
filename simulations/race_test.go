//go:build race

package main

// The race detector has the scheduler pick at random.
const randomScheduler = true
