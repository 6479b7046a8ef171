package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/freeport"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/lab"
)

// Three nodes restart one after another, twice, while six hold commands have all units of three
// keys. Each command asks the node that it began with, which is away for a while.
func TestHoldCommandsOutliveRollingRestarts(t *testing.T) {
	full.Only(t, "TestClientHoldsOutliveDeploys")
	t.Parallel()
	const (
		rate, commands = 2, 6
		ttl            = 20 * time.Second
		rounds         = 2
	)
	keyOf := func(command int) string { return fmt.Sprint("key", command/rate) }
	dir := folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"),
		[]byte(fmt.Sprintf("rules: [{name: exports, key: user, limit: {algorithm: in_flight, rate: %d}}]", rate)), 0o600))
	type place struct{ bind, admin, checks string }
	var (
		places []place
		binds  []string
	)
	for range 3 {
		p := place{freeport.Addr(t), freeport.Addr(t), freeport.Addr(t)}
		places, binds = append(places, p), append(binds, p.bind)
	}
	nodes := make([]*process, len(places))
	begin := func(i int) {
		t.Helper()
		nodes[i] = start(t, dir, "-name", fmt.Sprint("n", i), "-bind", places[i].bind, "-admin", places[i].admin, "-checks", places[i].checks,
			"-join", strings.Join(binds, ","), "-expect", "3", "-leave_within", "60s", "-timeout", "500ms")
	}
	for i := range nodes {
		begin(i)
	}
	waitReady(t, nodes...)

	stop := filepath.Join(dir, "stop")
	held := make([]*exec.Cmd, commands)
	outputs := make([]lab.Text, commands)
	for i := range held {
		held[i] = weirIn(t, dir, "hold", "-admin", "http://"+places[i%len(places)].admin, "-token_file", "admin", "-ttl", ttl.String(),
			"exports", keyOf(i), "--", "sh", "-c", "echo runs; while ! [ -e "+stop+" ]; do sleep 0.1; done; exit 9")
		held[i].Stdout, held[i].Stderr = &outputs[i], &outputs[i]
		require.NoError(t, held[i].Start())
		t.Cleanup(func() { _ = held[i].Process.Kill() })
		wait(t, func() bool { return outputs[i].String() == "runs\n" }, "command %d does not run", i)
	}

	probes, denials := 0, 0
	probe := func() { // asks each node for one unit more of each key
		for _, n := range nodes {
			for key := range commands / rate {
				status, text, err := n.tryPost("/v1/hold", fmt.Sprintf(`{"limit":"exports","key":"%s","ttl":"1s"}`, keyOf(key*rate)))
				if err != nil || status != http.StatusOK {
					continue // the node starts or ends
				}
				require.Contains(t, text, `"allowed":false`, "of %s, held by two commands", keyOf(key*rate))
				denials++
			}
		}
		probes++
	}
	for range rounds {
		for i, old := range nodes {
			exited := make(chan error, 1)
			require.NoError(t, old.Process.Signal(syscall.SIGTERM))
			go func() { exited <- old.Wait() }()
			for gone := false; !gone; {
				select {
				case err := <-exited:
					require.NoError(t, err, "%s", &old.out)
					gone = true
				default:
					probe()
				}
			}
			begin(i)
			for !settled(nodes) {
				probe()
			}
		}
	}
	// Each hold ends within ttl, unless it is renewed after the last restart.
	for ended := time.Now().Add(ttl); time.Now().Before(ended); time.Sleep(100 * time.Millisecond) {
		probe()
	}
	require.Positive(t, denials)
	t.Logf("%d denials in %d rounds of probes", denials, probes)

	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	for i, c := range held {
		require.Error(t, c.Wait())
		require.Equal(t, []any{9, "runs\n"}, []any{c.ProcessState.ExitCode(), outputs[i].String()}, "command %d", i)
	}
	for i := range held {
		wait(t, func() bool { // its units are free again
			code, _ := nodes[0].ask("hold", "-units", fmt.Sprint(rate), "exports", keyOf(i), "--", "true")
			return code == ok
		}, "%s is not released", keyOf(i))
	}
}
