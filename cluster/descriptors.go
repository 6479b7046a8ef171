package cluster

import "github.com/weir-go/weir/internal/rlimit"

// descriptors returns how many files and connections this process may have open at once.
func descriptors() uint64 { return rlimit.Files() }
