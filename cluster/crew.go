package cluster

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"time"
)

// crew is the goroutines of memberlist, which does not wait for them when it is
// shut down: those that wait for the answer to a probe outlive it by up to
// patience. A profiler label tells them from all others, because goroutines
// inherit the labels of who starts them.
type crew struct {
	patience time.Duration
}

const crewLabel = "cluster"

func (c *crew) id() string { return fmt.Sprintf("%p", c) }

// start runs f, which starts the goroutines.
func (c *crew) start(f func()) {
	pprof.Do(context.Background(), pprof.Labels(crewLabel, c.id()), func(context.Context) { f() })
}

// wait returns when all have ended, or after patience.
func (c *crew) wait() {
	const firstPause, lastPause = time.Millisecond, 50 * time.Millisecond
	deadline := time.Now().Add(c.patience)
	for pause := firstPause; c.busy() && time.Now().Before(deadline); pause = min(2*pause, lastPause) {
		time.Sleep(pause)
	}
}

func (c *crew) busy() bool {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return false
	}
	return bytes.Contains(profile.Bytes(), fmt.Appendf(nil, "%q:%q", crewLabel, c.id()))
}
