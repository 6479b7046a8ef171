//go:build !unix

package lab

import (
	"errors"
	"time"
)

// Signals reports whether this system has the signals of Leave, Freeze and Thaw, and
// reports the values of CPU and PeakMemory.
const Signals = false

// Leave returns errors.ErrUnsupported on this system.
func (c *Child) Leave() error { return errors.ErrUnsupported }

// Freeze returns errors.ErrUnsupported on this system.
func (c *Child) Freeze() error { return errors.ErrUnsupported }

// Thaw returns errors.ErrUnsupported on this system.
func (c *Child) Thaw() error { return errors.ErrUnsupported }

// CPU returns 0, because lab cannot read CPU times on this system.
func CPU() time.Duration { return 0 }

// PeakMemory returns 0, because lab cannot read the use of memory on this system.
func PeakMemory() int64 { return 0 }
