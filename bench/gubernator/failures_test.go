package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gubernator-io/gubernator/v2"
	"github.com/stretchr/testify/require"
)

// nodeVariable is the environment variable that makes the test binary run as a node,
// which ends when its standard input is closed.
const nodeVariable = "GUBERNATOR_NODE"

func TestMain(m *testing.M) {
	if os.Getenv(nodeVariable) == "" {
		os.Exit(m.Run())
	}
	n, err := startNode()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(n.addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startProcess starts a node in a separate process. kill ends the process like a crash.
func startProcess(t *testing.T) (addr string, kill func()) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), nodeVariable+"=1"), os.Stderr
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error reports that the process was killed
	})
	t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the node did not start: %v", lines.Err())
	return lines.Text(), kill
}

// startNodes starts nodes in this process.
func startNodes(t *testing.T, count int) (nodes []*node, addrs []string) {
	for range count {
		n, err := startNode()
		require.NoError(t, err)
		nodes, addrs = append(nodes, n), append(addrs, n.addr)
	}
	return nodes, addrs
}

// meet tells each of nodes that its cluster consists of the nodes at addrs.
func meet(t *testing.T, nodes []*node, addrs ...string) {
	for _, n := range nodes {
		require.NoError(t, n.meet(addrs))
	}
}

// perHour is the number of units of each key in an hour.
const perHour = 100

// countAdmitted sends the given number of requests for a key to each node concurrently, and
// returns the number of admitted requests.
func countAdmitted(t *testing.T, nodes []*node, key string, asks int, behavior gubernator.Behavior) int {
	var admitted, failed atomic.Int64
	var callers sync.WaitGroup
	for _, n := range nodes {
		callers.Go(func() {
			for range asks {
				r, err := n.check(&gubernator.RateLimitReq{
					Name: limitName, UniqueKey: key, Hits: 1, Behavior: behavior,
					Limit: perHour, Duration: time.Hour.Milliseconds(),
				})
				if err != nil {
					failed.Add(1)
				} else if r.Status == gubernator.Status_UNDER_LIMIT {
					admitted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	require.Zero(t, failed.Load(), "checks that failed")
	return int(admitted.Load())
}

func TestThreeNodesGrantOneLimit(t *testing.T) {
	nodes, addrs := startNodes(t, 3)
	meet(t, nodes, addrs...)
	require.Equal(t, perHour, countAdmitted(t, nodes, "key", perHour, 0))
}

// Each node responds before it has received the hits of the other nodes. If the machine pauses,
// the hits may arrive in time, so more than one key may be needed.
func TestThreeNodesGrantMoreThanOneGlobalLimit(t *testing.T) {
	nodes, addrs := startNodes(t, 3)
	meet(t, nodes, addrs...)
	most := 0
	for i := 0; i < 20 && most <= perHour; i++ {
		most = max(most, countAdmitted(t, nodes, fmt.Sprint("key ", i), perHour, gubernator.Behavior_GLOBAL))
	}
	t.Logf("a limit of %d granted %d", perHour, most)
	require.Greater(t, most, perHour)
}

// findKey returns a key for which wanted returns true. Keys differ in their first bytes, because the
// hash of gubernator places keys that differ only in the last byte side by side.
func findKey(wanted func(key string) bool) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint(i, " is the key"); wanted(key) {
			return key
		}
	}
}

func TestCountsOfCrashedOwnerAreLost(t *testing.T) {
	nodes, addrs := startNodes(t, 2)
	owner, kill := startProcess(t)
	meet(t, nodes, append(addrs, owner)...)
	key := findKey(func(key string) bool { return !nodes[0].owns(key) && !nodes[1].owns(key) })
	require.Equal(t, perHour, countAdmitted(t, nodes, key, perHour, 0))
	require.Zero(t, countAdmitted(t, nodes, key, 1, 0))
	kill()
	meet(t, nodes, addrs...) // as the discovery of gubernator does after a crash
	require.Equal(t, perHour, countAdmitted(t, nodes, key, perHour, 0))
}

func TestCountsOfKeysMovedToJoinerAreLost(t *testing.T) {
	nodes, addrs := startNodes(t, 4)
	meet(t, nodes, addrs...)
	moves, stays := findKey(nodes[3].owns), findKey(nodes[0].owns)
	meet(t, nodes[:3], addrs[:3]...)
	for _, key := range []string{moves, stays} {
		require.Equal(t, perHour, countAdmitted(t, nodes[:3], key, perHour, 0))
	}
	meet(t, nodes[:3], addrs...)
	require.Equal(t, perHour, countAdmitted(t, nodes[:3], moves, perHour, 0))
	require.Zero(t, countAdmitted(t, nodes[:3], stays, perHour, 0))
}
