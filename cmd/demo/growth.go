package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/weir-go/weir/internal/lab"
)

// Figures are the resources that a process holds while there is no traffic. -1 means that
// the system does not report the figure.
type Figures struct {
	RSS        int64 // bytes of the machine's memory
	Heap       int64 // bytes of the Go heap that are in use
	Goroutines int64
	Files      int64 // file descriptors
	Keys       int64 // counts that the node holds
}

// Measure returns the figures of the process. It collects garbage and returns free memory
// to the system first, so that the figures count only memory that is in use.
func (g *Gateway) Measure(_ int, f *Figures) error {
	runtime.GC()         // runs finalizers
	debug.FreeOSMemory() // runs the collector again, and returns free memory
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*f = Figures{
		RSS: lab.Resident(os.Getpid()), Heap: int64(m.HeapAlloc), Goroutines: int64(runtime.NumGoroutine()), Files: lab.OpenFiles(os.Getpid()), Keys: int64(g.view.Node.Stats().Keys),
	}
	return nil
}

// tolerance is the growth of a figure that is allowed from the first to the last third of
// a soak.
type tolerance struct {
	name string
	unit int64 // unit of the printed value
	of   func(*Figures) int64
	part float64 // allowed growth, as a fraction of the early value
	more int64   // further allowed growth
	why  string  // printed unit, and the reason for the growth
}

const mib = 1 << 20

// tolerances are far below a leak: a goroutine or a descriptor for each fault, check or
// connection is hundreds in ten minutes, and 1 KiB for each check is 20 MiB a minute.
var tolerances = []tolerance{
	{"RSS", mib, func(f *Figures) int64 { return f.RSS }, 0.20, 8 * mib, "MiB: the allocator keeps memory"},
	{"heap", mib, func(f *Figures) int64 { return f.Heap }, 0.10, 2 * mib, "MiB: keys of long limits, and tables that double"},
	{"routines", 1, func(f *Figures) int64 { return f.Goroutines }, 0, 8, "goroutines: gossip"},
	{"files", 1, func(f *Figures) int64 { return f.Files }, 0, 8, "file descriptors: gossip"},
	{"keys", 1, func(f *Figures) int64 { return f.Keys }, 0.10, 500, "keys of long limits"},
}

// fewest is the minimum number of times that the figures must have been taken.
const fewest = 4

// growth adds a claim for each figure of a gateway that must not grow. A claim compares
// the medians of the first third and the last third of the values, because a single value
// may be an outlier.
func (f *findings) growth(gateway int, series []Figures) {
	if len(series) < fewest {
		f.broken = append(f.broken, fmt.Sprintf("the figures of gateway %d were taken %d times: at least %d are needed, so let it run longer", gateway+1, len(series), fewest))
		return
	}
	third := max(2, len(series)/3)
	for i := range tolerances {
		t := &tolerances[i]
		var values []int64
		for j := range series {
			values = append(values, t.of(&series[j]))
		}
		if slices.Contains(values, -1) {
			continue
		}
		early, late := median(values[:third]), median(values[len(values)-third:])
		most := early + int64(t.part*float64(early)) + t.more
		shown := func(n int64) string { return fmt.Sprintf("%.4g", float64(n)/float64(t.unit)) }
		f.add(late <= most, t.name, shown(late), "of gateway %d in the last third of the rounds; %s in the first third, at most %s allowed, %s", gateway+1, shown(early), shown(most), t.why)
	}
}

func median(values []int64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
