package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/full"
)

var (
	processes = flag.Int("processes", 4, "how many processes TestWhatProcessesCostEachOther starts")
	idleFor   = flag.Duration("idle", time.Second, "for how long TestWhatProcessesCostEachOther looks at them while nothing is asked")
)

// members are the states that a process says its members have, by address, and its own
// address.
func (p *process) members() (states map[string]string, self string) {
	r, err := http.NewRequest(http.MethodGet, "http://"+p.addrs["admin"]+"/v1/members", nil)
	if err != nil {
		return nil, ""
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	client := http.Client{Timeout: 10 * time.Second}
	a, err := client.Do(r)
	if err != nil {
		return nil, ""
	}
	defer a.Body.Close()
	var said adminapi.Members
	if json.NewDecoder(a.Body).Decode(&said) != nil {
		return nil, ""
	}
	states = make(map[string]string)
	for _, m := range said.Members {
		states[m.Addr] = m.State
		if m.Self {
			self = m.Addr
		}
	}
	return states, self
}

// settled reports whether all these are ready, and serve as each of them says, and
// nobody else does.
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

// footprint is what a process has used of the machine.
type footprint struct {
	cpu      time.Duration
	resident int64 // bytes, now
}

func footprintOf(t *testing.T, p *process) (f footprint) {
	t.Helper()
	read := func(file string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.Process.Pid, file))
		require.NoError(t, err)
		return string(text)
	}
	_, after, found := strings.Cut(read("stat"), ") ") // proc(5): the name before it may have spaces
	require.True(t, found)
	const ticks = time.Second / 100 // USER_HZ, on all of Linux's architectures that Go runs on
	for _, i := range []int{11, 12} {
		n, err := strconv.Atoi(strings.Fields(after)[i])
		require.NoError(t, err)
		f.cpu += time.Duration(n) * ticks
	}
	_, after, found = strings.Cut(read("status"), "VmRSS:")
	require.True(t, found)
	kilobytes, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	require.NoError(t, err)
	f.resident = kilobytes << 10
	return f
}

// With -processes 30 -idle 1m, on a machine that does nothing else, the test measures the figures
// of docs/deploy.md.
func TestWhatProcessesCostEachOther(t *testing.T) {
	if *processes == 4 && *idleFor == time.Second { // otherwise the figures are wanted
		full.Only(t, "TestProcessesShareOneCountHoweverTheyAreAsked")
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
	cpu := func() (sum time.Duration) {
		for _, p := range all {
			sum += footprintOf(t, p).cpu
		}
		return sum
	}
	before := cpu()
	time.Sleep(*idleFor)
	used, resident := cpu()-before, int64(0)
	for _, p := range all {
		resident += footprintOf(t, p).resident
	}
	t.Logf("%d processes, of which each takes %.2f %% of a core and %d MB", len(all),
		100*used.Seconds()/idleFor.Seconds()/float64(len(all)), resident/int64(len(all))>>20)
}
