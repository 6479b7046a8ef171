package main

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/weir-go/weir"
)

// figures are what a process holds while its traffic rests. -1 is what this system
// does not say.
type figures struct {
	RSS        int64 // bytes that it has of the machine's memory
	Heap       int64 // bytes of the Go heap that are in use
	Goroutines int64
	Files      int64 // file descriptors
	Keys       int64 // counts that the node holds
}

// takeFigures collects garbage first, and gives what is free back to the machine: what
// is left is held by somebody.
func takeFigures(node *weir.Node) figures {
	runtime.GC()         // runs finalizers
	debug.FreeOSMemory() // collects what they let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := node.Stats()
	return figures{
		RSS: residentBytes(), Heap: int64(m.HeapAlloc), Goroutines: int64(runtime.NumGoroutine()), Files: openFiles(), Keys: int64(s.Keys),
	}
}

func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return -1
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return -1
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return -1
	}
	return pages * int64(os.Getpagesize())
}

func openFiles() int64 {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return -1
	}
	return int64(len(entries)) - 1 // but for the directory's own
}
