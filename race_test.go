//go:build race

package weir

// RaceDetector says that every access to memory is watched, which makes a test
// some seven times as slow. What the detector can see is which goroutines meet
// where: another thousand keys, or the same scenario over again, show it nothing
// new. So some tests are smaller under it; the plain run keeps each promise at
// its full size.
const RaceDetector = true
