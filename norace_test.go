//go:build !race

package weir_test

// raceDetector is explained in race_test.go.
const raceDetector = false
