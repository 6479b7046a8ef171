package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

var (
	processes = flag.Int("processes", 4, "how many processes TestCostsOfIdleProcesses starts")
	idleFor   = flag.Duration("idle", time.Second, "for how long TestCostsOfIdleProcesses looks at them while nothing is asked")
)

// members returns the states of all members by address, as the process reports them, and
// its own address.
func (p *process) members() (states map[string]string, self string) {
	c := client{base: "http://" + p.addrs["admin"], token: adminToken, http: http.Client{Timeout: 10 * time.Second}}
	all, err := c.members(context.Background())
	if err != nil {
		return nil, ""
	}
	states = make(map[string]string)
	for _, m := range all {
		states[m.Addr] = m.State
		if m.Self {
			self = m.Addr
		}
	}
	return states, self
}

// settled reports whether all processes are ready, and each of them reports as many members
// as there are processes, all of them serving.
func settled(ps []*process) bool {
	for _, p := range ps {
		members, _ := p.members()
		if len(members) != len(ps) || !p.ready() {
			return false
		}
		for _, state := range members {
			if state != "serving" {
				return false
			}
		}
	}
	return true
}

// calmAfter is slightly longer than the time after a start during which members assume that
// some other members do not know of the start.
const calmAfter = 20 * time.Second

// startTicker starts a process whose cost is that of waking up on this machine.
func startTicker(t *testing.T) (pid int) {
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self)
	c.Env = append(os.Environ(), asTicker+"=1")
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c.Process.Pid
}

// With -processes 12 and -idle 20s, on an otherwise idle machine, the test
// measures the figures of docs/deploy.md. The cost of a process that only wakes up four
// times a second varies tenfold between machines, so that the test reports this cost, too.
func TestCostsOfIdleProcesses(t *testing.T) {
	calm := calmAfter
	if *processes == 4 && *idleFor == time.Second { // otherwise the test measures the figures
		testenv.SkipUnlessFull(t, "TestProcessesShareOneCountOverAllInterfaces")
		calm = 0
	}
	dir, all := folder(t), []*process(nil)
	for i := range *processes {
		args := []string{"-name", fmt.Sprint("p", i), "-max_keys", "10000"}
		if i > 0 {
			args = append(args, "-join", all[0].addr(t))
		}
		all = append(all, start(t, dir, args...))
	}
	wait(t, func() bool { return settled(all) }, "not all meet")
	time.Sleep(calm)
	ticker := startTicker(t)
	time.Sleep(time.Second)
	before := make([]lab.Threads, len(all))
	begun, ticked := time.Now(), lab.ThreadsOf(ticker)
	for i, p := range all {
		before[i] = lab.ThreadsOf(p.Process.Pid)
	}
	time.Sleep(*idleFor)
	seconds := time.Since(begun).Seconds()
	t.Logf("a process that only wakes up 4 times a second takes %.2f %% of a core", 100*(lab.ThreadsOf(ticker).Ran-ticked.Ran).Seconds()/seconds)
	var cores, waits float64
	resident := int64(0)
	for i, p := range all {
		now := lab.ThreadsOf(p.Process.Pid)
		require.Positive(t, now.Ran)
		core, wait := (now.Ran-before[i].Ran).Seconds()/seconds, float64(now.Waits-before[i].Waits)/seconds
		t.Logf("process %d takes %.2f %% of a core, and waits %.0f times a second", i, 100*core, wait)
		cores, waits = cores+core, waits+wait
		resident += lab.Resident(p.Process.Pid)
	}
	require.Positive(t, resident)
	n := float64(len(all))
	t.Logf("%d processes, of which each takes %.2f %% of a core and %d MB, and waits %.0f times a second", len(all),
		100*cores/n, resident/int64(len(all))>>20, waits/n)
}
