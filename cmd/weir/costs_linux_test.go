package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/full"
)

var (
	processes = flag.Int("processes", 4, "how many processes TestWhatProcessesCostEachOther starts, at least 4")
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

// spent is what a process has used of the machine.
type spent struct {
	cpu      time.Duration
	written  int64 // bytes, to TCP connections and files: UDP's are not in it
	resident int64 // bytes, now
}

func spentBy(t *testing.T, p *process) (s spent) {
	t.Helper()
	read := func(file string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.Process.Pid, file))
		require.NoError(t, err)
		return string(text)
	}
	field := func(text, name string) int64 {
		_, after, found := strings.Cut(text, name)
		require.True(t, found, "%q of %q", name, text)
		n, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
		require.NoError(t, err)
		return n
	}
	_, after, found := strings.Cut(read("stat"), ") ") // proc(5): the name before it may have spaces
	require.True(t, found)
	const ticks = time.Second / 100 // USER_HZ, on all of Linux's architectures that Go runs on
	for _, i := range []int{11, 12} {
		n, err := strconv.Atoi(strings.Fields(after)[i])
		require.NoError(t, err)
		s.cpu += time.Duration(n) * ticks
	}
	s.written = field(read("io"), "wchar:")
	s.resident = field(read("status"), "VmRSS:") << 10
	return s
}

// What processes cost each other while nothing is asked, and how long it takes them to
// agree. With -processes 30 -idle 1m, on a machine that does nothing else, it makes the
// table of processes in docs/deploy.md.
func TestWhatProcessesCostEachOther(t *testing.T) {
	if *processes == 4 && *idleFor == time.Second { // otherwise somebody wants the table
		full.Only(t, "TestProcessesShareOneCountHoweverTheyAreAsked and TestAMemberThatLeavesUnderTrafficFailsNoRequest")
	}
	dir, size := folder(t), max(4, *processes)
	begin := func(name string, join ...string) *process {
		args := []string{"-name", name, "-max_keys", "10000"}
		for _, addr := range join {
			args = append(args, "-join", addr)
		}
		return start(t, dir, args...)
	}
	until := func(what string, is func() bool) time.Duration {
		begun := time.Now()
		require.Eventually(t, is, 2*time.Minute, 20*time.Millisecond, what)
		return time.Since(begun)
	}
	ps := []*process{begin("p0")}
	first := ps[0].addr(t)
	for i := 1; i < size; i++ {
		ps = append(ps, begin(fmt.Sprint("p", i), first))
	}
	met := until("all meet", func() bool { return settled(ps) })

	var before, after spent
	add := func(to *spent) {
		for _, p := range ps {
			s := spentBy(t, p)
			to.cpu, to.written, to.resident = to.cpu+s.cpu, to.written+s.written, to.resident+s.resident
		}
	}
	add(&before)
	time.Sleep(*idleFor)
	add(&after)

	joining := time.Now()
	ps = append(ps, begin(fmt.Sprint("p", size), first))
	until("one joins", func() bool { return settled(ps) })
	joined := time.Since(joining)

	const restarts = 3
	restarting := time.Now()
	for i := range restarts {
		p := ps[1+i]
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		require.NoError(t, p.Wait(), "it leaves in order")
		ps[1+i] = begin(fmt.Sprint("p", 1+i), first)
		until("one restarts", func() bool { return settled(ps) })
	}
	restart := time.Since(restarting) / restarts

	killed := ps[len(ps)-1]
	_, at := killed.members()
	require.NotEmpty(t, at)
	ps = ps[:len(ps)-1]
	require.NoError(t, killed.Process.Kill())
	crashed := time.Now()
	all := func(states ...string) func() bool {
		return func() bool {
			for _, p := range ps {
				said, _ := p.members()
				known := false
				for _, state := range states {
					known = known || said[at] == state
				}
				if !known {
					return false
				}
			}
			return true
		}
	}
	until("a crash is noticed", all("unheard", "dead"))
	noticed := time.Since(crashed)
	until("it is dead", all("dead"))
	dead := time.Since(crashed)

	each := func(n float64) float64 { return n / idleFor.Seconds() / float64(size) }
	t.Logf("all met %.1f s after the last of them was started", met.Seconds())
	t.Log("| processes | CPU of a process | a process writes, a second | resident | a join | a crash is noticed by all | is dead for all | a restart in order, each |")
	t.Logf("| %d | %.2f %% | %.1f KB | %.0f MB | %.1f s | %.1f s | %.1f s | %.1f s |", size,
		100*each((after.cpu-before.cpu).Seconds()), each(float64(after.written-before.written))/1000, float64(after.resident)/float64(size)/(1<<20),
		joined.Seconds(), noticed.Seconds(), dead.Seconds(), restart.Seconds())
}
