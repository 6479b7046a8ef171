//go:build !race

package countsync

// underRace is explained in race_test.go.
const underRace = false
