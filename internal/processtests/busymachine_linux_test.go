package processtests

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

var (
	busyRounds    = flag.Int("busyrounds", 2, "how many clusters TestBusyMachineAdmitsTheLimit starts, one after the other")
	busyProcesses = flag.Int("busyprocesses", 7*runtime.NumCPU(), "how many processes work without rest beside those of TestBusyMachineAdmitsTheLimit")
)

const (
	busyCallers  = 64
	busyRequests = 1000
	busySteady   = 2 * time.Second // pause between the two bursts
)

// Three gateways start on a machine without idle time. They admit exactly the limit, both
// when they are ready and later. A node does not treat an owner that waits for a core as
// missing.
func TestBusyMachineAdmitsTheLimit(t *testing.T) {
	wantsTheMachine(t)
	for range *busyProcesses {
		cmd, err := lab.Self(spinVariable+"=1", "GOMAXPROCS=1")
		require.NoError(t, err)
		c, err := lab.StartCommand(cmd, func([]byte) {})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = c.Kill()
			<-c.Ended()
		})
	}
	t.Logf("%d processes work on %d cores; %d callers send %d requests to 3 gateways", *busyProcesses, runtime.NumCPU(), busyCallers, busyRequests)
	exact := map[string]int{}
	for round := range *busyRounds {
		for burst, admitted := range busyRound(t, round) {
			if admitted == busyLimit.Rate {
				exact[burst]++
			}
		}
	}
	t.Logf("exact: %d of %d fresh starts, %d of %d in steady state", exact["fresh"], *busyRounds, exact["steady"], *busyRounds)
}

// busyLimit has a window that outlasts a round, so that each burst has the limit once.
var busyLimit = weir.Limit{Name: "busy", Algorithm: weir.SlidingLog, Rate: 100, Per: time.Minute}

// busyRound starts a cluster, and returns the number of requests that it admitted in each burst.
func busyRound(t *testing.T, round int) (admitted map[string]int64) {
	var addrs, gateways []string
	for range 3 {
		addrs = append(addrs, lab.FreeAddr(t))
	}
	begun := time.Now()
	var nodes []*remote
	for _, addr := range addrs {
		nodes = append(nodes, newRemote(t, settings{Bind: addr, Join: addrs}))
	}
	for _, n := range nodes {
		gateways = append(gateways, n.do(t, Order{Gateway: &busyLimit}).Gateway) // the node executes the order once it is ready
	}
	ready := time.Since(begun)
	admitted = map[string]int64{}
	took := map[string]time.Duration{}
	for _, burst := range []string{"fresh", "steady"} {
		begun := time.Now()
		admitted[burst] = sendBurst(t, gateways, "/"+burst)
		took[burst] = time.Since(begun)
		if burst == "fresh" {
			time.Sleep(busySteady)
		}
	}
	strays := 0
	for _, g := range gateways {
		for _, s := range straysOf(t, g) {
			strays++
			t.Logf("%+v", s)
		}
	}
	t.Logf("round %2d: ready after %7v  fresh: %d in %7v  steady: %d in %7v  not by authority: %d",
		round+1, rounded(ready), admitted["fresh"], rounded(took["fresh"]), admitted["steady"], rounded(took["steady"]), strays)
	for burst, n := range admitted {
		assert.Equal(t, busyLimit.Rate, n, "%s, round %d", burst, round+1)
	}
	for _, n := range nodes {
		_ = n.Stop(time.Minute)
	}
	return admitted
}

// sendBurst sends busyRequests requests for a key to the gateways in turn, and returns the
// number of admitted requests.
func sendBurst(t *testing.T, gateways []string, path string) int64 {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: busyCallers}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	var sent, admitted atomic.Int64
	var callers sync.WaitGroup
	for range busyCallers {
		callers.Go(func() {
			for i := sent.Add(1); i <= busyRequests; i = sent.Add(1) {
				r, err := client.Get("http://" + gateways[int(i)%len(gateways)] + path)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
				if r.StatusCode == http.StatusOK {
					admitted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	return admitted.Load()
}

func straysOf(t *testing.T, gateway string) (strays []stray) {
	r, err := http.Get("http://" + gateway + pathStrays)
	require.NoError(t, err)
	defer r.Body.Close()
	require.NoError(t, json.NewDecoder(r.Body).Decode(&strays))
	return strays
}
