package httplimit

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// warn marks the limits whose used part is at least rules.Limit.Warn after an admitted request. It counts
// one warning for each rule with such a limit, and passes new warnings to OnWarn.
func (m *Middleware) warn(o *Outcome) {
	var counted *rules.Rule
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.limit == nil || v.limit.Warn == 0 || !v.hasState() || !isUsed(&v.Decision, v.limit.Warn) {
			continue
		}
		if v.Warned = true; v.Rule != counted {
			o.Snapshot.CountWarning(v.Rule)
			counted = v.Rule
		}
		o.warned = true
		if m.o.OnWarn != nil && m.warnings.isNew(v, m.now()) {
			m.o.OnWarn(v)
		}
	}
}

// isUsed reports whether at least the given part of the limit is used. The rounding of floats must not
// delay a warning by a unit.
func isUsed(d *weir.Decision, part float64) bool {
	return d.Limit > 0 && float64(d.Limit-d.Remaining) >= part*float64(d.Limit)*(1-1e-12)
}

// warnings has the keys that were reported to OnWarn. The upper half of an element has 32 bits of the hash
// of a key. The lower half has the time in Unix seconds from which the key is reported again. A key evicts
// another key in the same element.
type warnings [4096]atomic.Uint64

// inFlightReport is the time until a key of an InFlight limit is reported again.
const inFlightReport = time.Minute

// isNew reports whether a warning must be reported because it is the first of its key in a window.
func (w *warnings) isNew(v *Verdict, now time.Time) bool {
	l, id := v.Limiter.Limit(), v.Limiter.ID(v.Key)
	window := v.Decision.ResetAfter
	switch {
	case l.Algorithm == weir.InFlight:
		window = inFlightReport
	case l.Per > 0:
		window = min(window, l.Per)
	}
	end := uint64(now.Add(window+time.Second-1).Unix()) & (1<<32 - 1)
	tag := uint64(binary.LittleEndian.Uint32(id[8:])) << 32
	at := &w[binary.LittleEndian.Uint32(id[12:])%uint32(len(w))]
	before := at.Load()
	if before&^(1<<32-1) == tag && uint64(now.Unix()) < before&(1<<32-1) {
		return false
	}
	return at.CompareAndSwap(before, tag|end)
}
