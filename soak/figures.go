package main

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
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
		RSS: lab.Resident(os.Getpid()), Heap: int64(m.HeapAlloc), Goroutines: int64(runtime.NumGoroutine()), Files: lab.OpenFiles(os.Getpid()), Keys: int64(s.Keys),
	}
}
