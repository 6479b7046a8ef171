//go:build race

package countsync

// underRace says that the race detector makes everything some ten times as slow.
// It looks for goroutines that meet: schedules that one of them plays show it
// nothing new, so few of them do.
const underRace = true
