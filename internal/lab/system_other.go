//go:build !unix

package lab

import (
	"errors"
	"time"
)

// Signals reports whether this system has those of Leave, Freeze and Thaw, and tells what CPU
// and PeakMemory return.
const Signals = false

// Leave returns errors.ErrUnsupported on this system.
func (c *Child) Leave() error { return errors.ErrUnsupported }

// Freeze returns errors.ErrUnsupported on this system.
func (c *Child) Freeze() error { return errors.ErrUnsupported }

// Thaw returns errors.ErrUnsupported on this system.
func (c *Child) Thaw() error { return errors.ErrUnsupported }

// CPU returns 0: this system's CPU times are not read here.
func CPU() time.Duration { return 0 }

// PeakMemory returns 0: this system's use of memory is not read here.
func PeakMemory() int64 { return 0 }
