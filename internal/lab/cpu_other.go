//go:build !unix

package lab

import "time"

// CPU returns 0: this system's CPU times are not read here.
func CPU() time.Duration { return 0 }
