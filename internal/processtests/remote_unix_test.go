//go:build unix

package processtests

import (
	"cmp"
	"context"
	"encoding/json"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testnode"
)

// nodeVariable is the environment variable that makes the test binary run a node. Its value is
// the JSON encoding of settings.
const nodeVariable = "WEIR_TEST_NODE"

// settings is the configuration of a node in another process.
type settings struct {
	Bind    string // if empty, a loopback address with an unused port
	Join    []string
	Timeout time.Duration // if zero, the default
	Secret  string        // if empty, no secret, which requires a loopback address
}

// service is the node in the other process, for the test that calls it.
type service struct {
	node   *node
	failed *failures
	ready  chan struct{} // closed once the node is ready
}

// runNode runs a node until the test ends the process.
func runNode(told string) error {
	var s settings
	if err := json.Unmarshal([]byte(told), &s); err != nil {
		return err
	}
	failed := &failures{}
	cfg := weir.Config{
		Bind: cmp.Or(s.Bind, "127.0.0.1:0"), Join: s.Join, Timeout: s.Timeout, Observer: failed, Logger: quiet,
	}
	if s.Secret != "" {
		cfg.Secrets = [][]byte{[]byte(s.Secret)}
	}
	n, err := testnode.Open(context.Background(), cfg)
	if err != nil {
		return err
	}
	defer n.Close()
	ready := make(chan struct{})
	go func() { // this goroutine ends with the process at the latest
		for !n.Ready() {
			time.Sleep(time.Millisecond)
		}
		close(ready)
	}()
	return lab.ServeCalls("Node", &service{n, failed, ready})
}

// Execute waits until the node is ready, and then executes an order.
func (s *service) Execute(o Order, r *Report) error {
	<-s.ready
	*r = carryOut(s.node, s.failed, o)
	return nil
}

// Order is a command from a test to a node in another process. In each round, the node requests
// a unit for each question, and then sleeps for Pace. If Rounds is 0, the node only reports the
// counts. If Load or Gateway is set, the node executes that command instead.
type Order struct {
	Questions []question
	Rounds    int
	Pace      time.Duration
	Load      *load
	Gateway   *weir.Limit // limit that the node applies to HTTP requests until it ends
}

type question struct {
	Limit weir.Limit
	Key   string
}

// Report is the result of an order.
type Report struct {
	Addr      string // address of the node
	Refused   map[string]uint64
	Tallies   []tally       // a tally for each question
	Slowest   time.Duration // the longest check, without the lateness of this process during the check
	Late      time.Duration // the longest delay between the time of a timer and its wakeup
	Lost      int64         // number of failed requests to other members, which may have executed them
	Calm      bool          // no request failed, and the set of members that this node is connected to was stable
	Members   int           // number of members in the roster
	Direct    bool          // the node is connected to every other member
	Connected bool          // every member is connected to every other member, according to this node
	New       bool          // a connection of this node is in its first second (see cluster.Peer), or a member reports a delay of a second
	Settled   bool          // the ring contains every member, and this node has authority over its part of the ring
	Loaded    *loadResult   // result of Load
	Gateway   string        // address of the gateway
}

// tally has the results of the checks of a question at a node.
type tally struct {
	Owner    string              // address of the owner
	Admitted int64               // number of admitted units
	Granted  int64               // number of admitted units that the owner granted
	Sources  map[weir.Source]int // number of checks by the source of their decision
	Used     int64               // number of units in the count at the end, including a debt
	Errors   []string            // errors of the checks
}

// failures is an Observer that counts failed requests to other members.
type failures struct{ atomic.Int64 }

func (*failures) Decided(context.Context, weir.DecisionEvent) {}
func (f *failures) Hopped(ctx context.Context, e weir.HopEvent) {
	addHop(ctx, e)
	if e.Err != nil {
		f.Add(1)
	}
}

func carryOut(n *node, failed *failures, o Order) Report {
	if o.Load != nil {
		return Report{Loaded: runLoad(n, *o.Load)}
	}
	if o.Gateway != nil {
		addr, err := serveGateway(n, *o.Gateway)
		if err != nil {
			panic(err)
		}
		return Report{Gateway: addr}
	}
	r := Report{Tallies: make([]tally, len(o.Questions))}
	limiters, wider := make([]*weir.Limiter, len(o.Questions)), make([]*weir.Limiter, len(o.Questions))
	for i, q := range o.Questions {
		t := &r.Tallies[i]
		t.Sources = make(map[weir.Source]int)
		var err error
		if limiters[i], err = n.Limiter(q.Limit); err == nil {
			q.Limit.Rate *= 100 // a larger limit of the same count, so that Remaining is positive even with a debt
			wider[i], err = n.Limiter(q.Limit)
		}
		if err != nil {
			t.Errors = append(t.Errors, err.Error())
			return r
		}
		t.Owner = limiters[i].Owner(q.Key).Addr
	}
	if o.Rounds > 0 {
		before := failed.Load()
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			r.Calm = watch(n, stop)
		}()
		late := lab.MeasureDelay()
		for range o.Rounds {
			for i, l := range limiters {
				t := &r.Tallies[i]
				begun, before := time.Now(), late.Total()
				d, err := l.Allow(context.Background(), o.Questions[i].Key)
				r.Slowest = max(r.Slowest, time.Since(begun)-(late.Total()-before))
				t.Sources[d.Source]++
				if err != nil {
					t.Errors = append(t.Errors, err.Error())
				}
				if d.Allowed {
					t.Admitted++
					if d.Source <= weir.Relayed {
						t.Granted++
					}
				}
			}
			time.Sleep(o.Pace)
		}
		close(stop)
		<-stopped
		late.Stop()
		r.Late = late.Worst()
		r.Lost = failed.Load() - before
		r.Calm = r.Calm && r.Lost == 0
	}
	for i, l := range wider {
		d, err := l.Peek(context.Background(), o.Questions[i].Key)
		if err != nil {
			r.Tallies[i].Errors = append(r.Tallies[i].Errors, err.Error())
		}
		r.Tallies[i].Used = d.Limit - d.Remaining
	}
	v := n.View()
	r.Addr, r.Refused = v.Members[v.Self].Addr, n.Stats().Cluster.Refused
	r.Members, r.Direct, r.Connected = len(v.Members), true, true
	for i := range v.Members {
		r.Direct = r.Direct && (v.Direct[i] || i == v.Self)
		r.New = r.New || i != v.Self && v.Members[i].Peer.Delay() >= time.Second
		for j := range v.Members {
			r.Connected = r.Connected && v.IsConnected(i, j)
		}
	}
	r.Settled = v.Settled && v.Complete && len(v.Points) == len(v.Members)
	return r
}

// watch reports whether the set of members that the node is connected to stays the same
// until stop is closed. It returns false if a member was lost so recently that other
// members may not know of the loss.
func watch(n *node, stop <-chan struct{}) (calm bool) {
	v, now := n.View(), n.Monotonic()
	calm = true
	for i := range v.Members {
		calm = calm && (v.Lost[i] == 0 || v.Overdue(i, now))
	}
	for direct := v.Direct; ; {
		select {
		case <-stop:
			return calm
		case <-time.After(time.Millisecond):
		}
		calm = calm && slices.Equal(direct, n.View().Direct)
	}
}

// remote is a node in another process.
type remote struct{ *lab.Service }

// newRemote starts this program as a node, and kills the node when the test ends. The command, if
// it is not empty, runs the program.
func newRemote(t *testing.T, s settings, command ...string) *remote {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	command = append(command, os.Args[0])
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), nodeVariable+"="+string(text))
	r, err := lab.StartService(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = r.Kill()
		<-r.Ended()
	})
	return &remote{r}
}

// await waits for the reply of the node to a call.
func (r *remote) await(t *testing.T, call *rpc.Call) {
	t.Helper()
	select {
	case <-call.Done:
	case <-time.After(time.Minute):
		t.Fatal("a node in another process has not replied within a minute")
	}
	if call.Error != nil {
		_ = r.Await(time.Minute)
		t.Fatalf("a node in another process: %v: %s", call.Error, r.Outcome())
	}
}

// begin sends an order to the node, and returns a function that waits for the report.
func (r *remote) begin(t *testing.T, o Order) (await func() Report) {
	t.Helper()
	var report Report
	call := r.Go("Node.Execute", o, &report, nil)
	return func() Report {
		t.Helper()
		r.await(t, call)
		return report
	}
}

func (r *remote) do(t *testing.T, o Order) Report {
	t.Helper()
	return r.begin(t, o)()
}
