//go:build !unix

package rules

// openWithoutWaiting is nothing where no path leads to a FIFO.
const openWithoutWaiting = 0
