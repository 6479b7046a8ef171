//go:build !race

package weir

// RaceDetector is explained in race_test.go.
const RaceDetector = false
