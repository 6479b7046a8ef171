//go:build !unix

package rules

// openWithoutWaiting is 0 on systems where no path leads to a FIFO.
const openWithoutWaiting = 0
