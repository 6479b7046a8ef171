//go:build unix

package processtests

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/realtime"
)

// order is what a test has a node in another process do, as a line of JSON on
// its stdin: so many rounds, each of one unit of each question in turn, with a
// pause after each round. No rounds: it only looks. With Keep, Leave, a Load or a
// Gateway it does that instead.
type order struct {
	ID        int
	Questions []question
	Rounds    int
	Pace      time.Duration
	Keep      int  // units of each question that the node holds or reserves, one by one, and keeps
	Leave     bool // in order, before the process is stopped
	Load      *load
	Gateway   *weir.Limit // the limit of the HTTP requests that the node answers until it ends
}

type question struct {
	Limit weir.Limit
	Key   string
}

// report is what the node answers, as a line of JSON on its stdout.
type report struct {
	ID      int
	Tallies []tally       // of each question
	Slowest time.Duration // of all checks, without what this process was late meanwhile
	Late    time.Duration // how much later than asked this process was woken at worst: the scheduling slack
	Lost    int64         // requests to other members that were not answered in time: each may have been carried out there
	Calm    bool          // none was lost, and whom this node hears did not change, nor just before
	Members int           // in the roster
	Direct  bool          // this node hears every other
	Hears   bool          // every member hears every other, as this node knows
	Settled bool          // and each holds what the ring gives it
	Loaded  *loaded       // of the order's Load
	Gateway string        // its address, of the order's Gateway
}

type tally struct {
	Owner    string // its address
	Admitted int64
	Granted  int64 // of these, by the owner
	Sources  map[weir.Source]int
	Used     int64    // units that the count holds afterwards, a debt included
	Errors   []string // of checks
}

// failures counts the requests to other members that were not answered in time.
type failures struct{ atomic.Int64 }

func (*failures) Decided(context.Context, weir.DecisionEvent) {}
func (f *failures) Hopped(ctx context.Context, e weir.HopEvent) {
	addHop(ctx, e)
	if e.Err != nil {
		f.Add(1)
	}
}

// obey carries out orders, each at once, until there are no more.
func obey(n *node, failed *failures, orders io.Reader, reports io.Writer) {
	for d := json.NewDecoder(orders); ; {
		var o order
		if d.Decode(&o) != nil {
			return
		}
		go func() {
			line, err := json.Marshal(carryOut(n, failed, o))
			if err != nil {
				panic(err)
			}
			reports.Write(append(line, '\n'))
		}()
	}
}

func carryOut(n *node, failed *failures, o order) report {
	if o.Load != nil {
		return report{ID: o.ID, Loaded: putThrough(n, *o.Load)}
	}
	if o.Gateway != nil {
		addr, err := serveGateway(n, *o.Gateway)
		if err != nil {
			panic(err)
		}
		return report{ID: o.ID, Gateway: addr}
	}
	if o.Leave {
		r := report{ID: o.ID}
		if err := n.Leave(context.Background()); err != nil {
			r.Tallies = []tally{{Errors: []string{err.Error()}}}
		}
		return r
	}
	if o.Keep > 0 {
		return keep(n, o)
	}
	r := report{ID: o.ID, Tallies: make([]tally, len(o.Questions))}
	limiters, wider := make([]*weir.Limiter, len(o.Questions)), make([]*weir.Limiter, len(o.Questions))
	for i, q := range o.Questions {
		t := &r.Tallies[i]
		t.Sources = make(map[weir.Source]int)
		var err error
		if limiters[i], err = n.Limiter(q.Limit); err == nil {
			q.Limit.Rate *= 100 // the same count by another number, of which a debt leaves something
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
		late := realtime.MeasureLateness()
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
	r.Members, r.Direct, r.Hears = len(v.Members), true, true
	for i := range v.Members {
		r.Direct = r.Direct && (v.Direct[i] || i == v.Self)
		for j := range v.Members {
			r.Hears = r.Hears && v.Hears[i][j]
		}
	}
	r.Settled = v.Settled && v.Complete && len(v.Points) == len(v.Members)
	return r
}

// keep has a node take units that it does not give back.
func keep(n *node, o order) report {
	r := report{ID: o.ID, Tallies: make([]tally, len(o.Questions))}
	for i, q := range o.Questions {
		t := &r.Tallies[i]
		t.Sources = make(map[weir.Source]int)
		l, err := n.Limiter(q.Limit)
		for range o.Keep {
			var d weir.Decision
			switch {
			case err != nil:
			case q.Limit.Algorithm == weir.InFlight:
				var h *weir.Hold
				h, err = l.Hold(context.Background(), q.Key, 1)
				d = h.Decision()
			default:
				var v *weir.Reservation
				v, err = l.Reserve(context.Background(), q.Key, 1)
				d = v.Decision()
			}
			if err != nil {
				t.Errors = append(t.Errors, err.Error())
				break
			}
			t.Sources[d.Source]++
			if d.Allowed {
				t.Admitted++
			}
		}
	}
	return r
}

// watch reports whether whom the node hears stayed the same, and those whom it does not
// hear have been lost for long enough to be asked through others.
func watch(n *node, stop <-chan struct{}) (calm bool) {
	v, now := n.View(), n.Steady()
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
type remote struct {
	*lab.Child
	mu      sync.Mutex
	sight   string // how it last said that each member stands
	orders  int
	waiting map[int]chan report
}

// newRemote starts a command that is a node, and lives until the test ends.
func newRemote(t *testing.T, child *exec.Cmd) *remote {
	t.Helper()
	r := &remote{waiting: make(map[int]chan report)}
	var err error
	r.Child, err = lab.StartCommand(child, os.Stderr, func(line []byte) { r.read(t, line) })
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Stop(time.Minute) })
	return r
}

func (r *remote) read(t *testing.T, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !bytes.HasPrefix(line, []byte("{")) {
		r.sight = string(line)
		return
	}
	var done report
	if err := json.Unmarshal(line, &done); err != nil {
		t.Errorf("%v: %s", err, line)
	}
	if answer := r.waiting[done.ID]; answer != nil {
		answer <- done // it has room for one
	}
	delete(r.waiting, done.ID)
}

func (r *remote) said() string { r.mu.Lock(); defer r.mu.Unlock(); return r.sight }

// begin gives an order, and returns what waits for its report.
func (r *remote) begin(t *testing.T, o order) (await func() report) {
	t.Helper()
	answer := make(chan report, 1)
	r.mu.Lock()
	r.orders++
	o.ID = r.orders
	r.waiting[o.ID] = answer
	err := r.Order(o)
	r.mu.Unlock()
	require.NoError(t, err)
	return func() report {
		t.Helper()
		select {
		case done := <-answer:
			return done
		case <-time.After(time.Minute):
			t.Fatal("a node in another process has not carried out an order within a minute")
			return report{}
		}
	}
}

func (r *remote) do(t *testing.T, o order) report {
	t.Helper()
	return r.begin(t, o)()
}
