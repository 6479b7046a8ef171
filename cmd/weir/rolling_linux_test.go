package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
)

// nextRelease contains the changes of the source code that turn this release into a next release, which keeps
// the rules of cluster.Version: the version of the peer protocol rises, and frames of the stream end with an
// additional byte. A node sends the older form to a member of this release, and reads both.
var nextRelease = []struct{ file, from, to string }{
	{"cluster/protocol.go", "const Version = 1\n", "const Version = 2\n"},
	{
		"internal/handover/stream.go", "	return env.Call(ctx, v.Members[v.Next[i]].Peer, header, frame, frameWait)\n",
		`	if v.Next[i] == i && len(frame) > 0 && v.Members[i].Peer.Protocol().Version == 2 {
			frame = append(frame[:len(frame):len(frame)], 0xa5)
		}
		return env.Call(ctx, v.Members[v.Next[i]].Peer, header, frame, frameWait)
`,
	},
	{
		"internal/check/message.go", "	case wire.OpStream:\n",
		`	case wire.OpStream:
		if last := len(body) - 1; last >= 0 && r.h.Hops == wire.MaxHops && r.batch.Protocol.Version == 2 {
			if body[last] != 0xa5 {
				panic("a frame in the form of version 1")
			}
			body = body[:last]
		}
`,
	},
}

// buildNext builds the weir command of the next release.
func buildNext(t *testing.T) (path string) {
	t.Helper()
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir, replaced := t.TempDir(), make(map[string]string)
	for _, c := range nextRelease {
		file := filepath.Join(top, c.file)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), c.from), "%s: the line that the next release changes", c.file)
		replaced[file] = filepath.Join(dir, strings.ReplaceAll(c.file, "/", "_"))
		require.NoError(t, os.WriteFile(replaced[file], []byte(strings.Replace(string(text), c.from, c.to, 1)), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	path = filepath.Join(dir, "next-weir")
	out, err := exec.CommandContext(ctx, "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// rolled contains the number of admitted units of each key, over all processes.
type rolled struct {
	mu       sync.Mutex
	admitted map[string]int
	// unsure counts the admitted units that were decided without authority, for example
	// because an owner stalled on a busy machine.
	unsure map[string]int
	live   atomic.Pointer[[]*process]
}

const perHour = 1000

var remaining = regexp.MustCompile(`"remaining":(\d+)`)

// ask sends a request to the process with the index first, or to the next live process if that process
// no longer listens.
func (r *rolled) ask(ctx context.Context, client *http.Client, first int, key string) error {
	live := *r.live.Load()
	for i := range live {
		p := live[(first+i)%len(live)]
		q, err := p.newCheck(ctx, "/v1/take", `{"limit":"api/hourly","key":"`+key+`"}`)
		if err != nil {
			return err
		}
		q.GetBody = nil // a sent request is not repeated
		answer, err := client.Do(q)
		if refused := (*net.OpError)(nil); errors.As(err, &refused) && refused.Op == "dial" {
			continue
		} else if err != nil {
			return err
		}
		var said struct {
			Allowed bool
			Source  string
		}
		err = json.NewDecoder(answer.Body).Decode(&said)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %w", answer.Status, err)
		}
		if said.Allowed {
			r.mu.Lock()
			r.admitted[key]++
			if !decidedByAuthority.MatchString(`"source":"` + said.Source + `"`) {
				r.unsure[key]++
			}
			r.mu.Unlock()
		}
		return nil
	}
	return errors.New("no process listens")
}

// A limit of 1,000 an hour admits 1,000 units during the whole roll and roll back, and at most one more for each
// move of authority and each decision without authority. No check fails, and no count is reset.
func TestRollToNextReleaseAndBackLosesNothing(t *testing.T) {
	testenv.SkipUnlessFull(t, "TestNodesSpeakTheNewestCommonVersion in cluster and TestProcessesShareOneCountOverAllInterfaces")
	t.Parallel()
	other := buildNext(t)
	dir := folder(t)
	rules := strings.Replace(someRules, "rate: 60", fmt.Sprint("rate: ", perHour), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600))

	r := &rolled{admitted: make(map[string]int), unsure: make(map[string]int)}
	var live []*process
	replace := func(i int, build string) {
		t.Helper()
		var join []string
		for _, p := range live {
			_, self := p.members()
			join = append(join, self)
		}
		next := startWith(t, dir, func(p *process) {
			if build != "" {
				p.Path = build
			}
		}, "-name", fmt.Sprint("n", i), "-leave_within", "60s", "-join", strings.Join(join, ","))
		wait(t, func() bool { return settled(append(live[:len(live):len(live)], next)) }, "the new process does not serve")
		if i >= len(live) {
			live = append(live, next)
			return
		}
		gone := live[i]
		all := append(live[:0:0], live...)
		all[i] = next
		live = all
		r.live.Store(&all)
		require.NoError(t, gone.Process.Signal(syscall.SIGTERM))
		require.NoError(t, gone.Wait(), "it exits with 0: %s", &gone.out)
		wait(t, func() bool { return settled(live) }, "the others do not serve without it")
		for _, p := range live {
			_, metrics := get(t, "http://"+p.addrs["health"]+"/metrics")
			require.NotRegexp(t, `weir_cluster_refused_total\{reason="version"\} [1-9]`, metrics)
		}
	}
	for i := range 3 {
		replace(i, "")
	}
	r.live.Store(&live)

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	var turn atomic.Int64
	load := send(t, func(ctx context.Context, key string) error {
		time.Sleep(2 * time.Millisecond)
		n := int(turn.Add(1))
		if n%5 == 0 {
			key = "hot" // the limit of this key is used up early, and must stay so
		} else {
			_, key, _ = strings.Cut(key, "-")
		}
		return r.ask(ctx, client, n, key)
	})
	const moves = 6
	for _, build := range []string{other, ""} {
		for i := range 3 {
			load.awaitRequests(t, 300)
			replace(i, build)
		}
	}
	load.awaitRequests(t, 300)
	load.end(t, "checks")

	for key, admitted := range r.admitted {
		// At most one unit is in flight at each move of authority.
		within := moves + r.unsure[key]
		require.LessOrEqual(t, admitted, perHour+within, "of key %q", key)
		var left int
		wait(t, func() bool { // leased units are returned first
			_, out := live[0].ask("peek", "api/hourly", key, "-json")
			found := remaining.FindStringSubmatch(out)
			require.NotNil(t, found, out)
			left, _ = strconv.Atoi(found[1])
			return left >= perHour-admitted-within
		}, "of key %q %d were admitted, and fewer remain of %d", key, admitted, perHour)
		require.LessOrEqual(t, left, max(0, perHour-admitted)+within, "of key %q %d were admitted", key, admitted)
	}
	require.GreaterOrEqual(t, r.admitted["hot"], perHour, "it was not used up")
	t.Logf("%d checks, of %d keys; %d of the key that is used up", load.asked.Load(), len(r.admitted), r.admitted["hot"])
}
