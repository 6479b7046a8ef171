package weirtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// echoes answers each request with the bytes of the request.
type echoes struct{ late chan string }

func (echoes) Changed() {}

func (echoes) Answered() {}

func (echoes) Serve(b *cluster.Batch) {
	for i, request := range b.Requests {
		b.Reply(i, request)
	}
}

// counting counts the calls of Answered.
type counting struct {
	echoes
	heard *atomic.Int64
}

func (c counting) Answered() { c.heard.Add(1) }

func (e echoes) HandleLate(_ cluster.Peer, _, answer []byte) {
	select {
	case e.late <- string(answer):
	default:
	}
}

// fleet is a set of clusters that are closed when the test ends.
type fleet struct {
	t        *testing.T
	n        *weirtest.Network
	clusters map[string]cluster.Cluster
	all      []cluster.Cluster
	late     chan string
}

func newFleet(t *testing.T, n *weirtest.Network, hosts ...string) *fleet {
	f := &fleet{t: t, n: n, clusters: map[string]cluster.Cluster{}, late: make(chan string, 10)}
	t.Cleanup(f.close)
	for _, h := range hosts {
		f.start(h, n.Host(h).Cluster(cluster.Config{Forget: time.Minute}))
	}
	return f
}

func (f *fleet) start(host string, c cluster.Cluster) {
	f.t.Helper()
	f.join(f.t.Context(), host, c, echoes{f.late})
	require.NoError(f.t, c.Announce(cluster.Serving))
}

// join starts a cluster that announces nothing.
func (f *fleet) join(ctx context.Context, host string, c cluster.Cluster, h cluster.Handler) {
	f.t.Helper()
	require.NoError(f.t, c.Start(ctx, h))
	f.clusters[host], f.all = c, append(f.all, c)
}

func (f *fleet) close() {
	var closing sync.WaitGroup
	for _, c := range f.all {
		closing.Go(func() { _ = c.Close() })
	}
	closing.Wait()
}

// roster returns the members in the view of a host, like "a-1 serving, b-1 dead".
func (f *fleet) roster(host string) string {
	var s []string
	for _, m := range f.clusters[host].View().Members {
		s = append(s, fmt.Sprintf("%s %v", m.Name, m.State))
	}
	return strings.Join(s, ", ")
}

// await waits until problem returns an empty text, and returns how long that took.
func (f *fleet) await(within time.Duration, problem func() string) time.Duration {
	f.t.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		switch text := problem(); {
		case text == "":
			return time.Since(start)
		case time.Since(start) > within:
			f.t.Fatalf("after %v %s", within, text)
		}
	}
}

// awaitRoster waits until all hosts have this roster, and returns how long that took.
func (f *fleet) awaitRoster(want string, within time.Duration, hosts ...string) time.Duration {
	f.t.Helper()
	return f.await(within, func() string {
		for _, h := range hosts {
			if got := f.roster(h); got != want {
				return fmt.Sprintf("%s sees %s, not %s", h, got, want)
			}
		}
		return ""
	})
}

// ask sends a request from one host to another, and returns the answer.
func (f *fleet) ask(from, to string, wait time.Duration) (string, error) {
	for _, m := range f.clusters[from].View().Members {
		if strings.HasPrefix(m.Name, to+"-") && m.Peer != nil {
			answer, err := m.Peer.Ask(f.t.Context(), []byte("hello "+to), nil, wait)
			return string(answer), err
		}
	}
	return "", errors.New("no such member")
}

var quick = weirtest.Link{Latency: milli, Jitter: milli}

func TestSimulatedMembershipKeepsItsPromises(t *testing.T) {
	for promise, check := range map[string]func(t *testing.T, n *weirtest.Network){
		"a split is seen within 2 s, is death after 5 s more, and heals within 1 s": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a", "b", "c", "d", "e")
			whole := "a-1 serving, b-1 serving, c-1 serving, d-1 serving, e-1 serving"
			f.awaitRoster(whole, second, "a", "b", "c", "d", "e")
			n.Split([]string{"a", "b"}, []string{"c", "d", "e"})
			f.awaitRoster("a-1 serving, b-1 serving, c-1 missing, d-1 missing, e-1 missing", 2*second, "a", "b")
			f.awaitRoster("a-1 missing, b-1 missing, c-1 serving, d-1 serving, e-1 serving", 2*second, "c", "d", "e")
			f.awaitRoster("a-1 serving, b-1 serving, c-1 dead, d-1 dead, e-1 dead", 6*second, "a", "b")
			time.Sleep(30 * second)
			n.Heal()
			f.awaitRoster(whole, second, "a", "b", "c", "d", "e")
		},
		"a cut between two leaves them on one side": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a", "b", "c")
			f.awaitRoster("a-1 serving, b-1 serving, c-1 serving", second, "a", "b", "c")
			n.Cut("a", "b")
			time.Sleep(10 * second)
			require.Equal(t, "a-1 serving, b-1 serving, c-1 serving", f.roster("a"))
			v := f.clusters["a"].View()
			require.Equal(t, [][]int{{2}, {2}, {0, 1}}, v.Connected)
			_, err := f.ask("a", "b", second)
			require.ErrorIs(t, err, cluster.ErrDisconnected)
		},
		"the larger side forgets dead members after Forget, the smaller after ten times that, and a forgotten member joins again": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a", "b", "c")
			f.awaitRoster("a-1 serving, b-1 serving, c-1 serving", second, "a", "b", "c")
			n.Split([]string{"a"}, []string{"b", "c"})
			time.Sleep(60 * second)
			require.Equal(t, "a-1 dead, b-1 serving, c-1 serving", f.roster("b"))
			f.awaitRoster("b-1 serving, c-1 serving", 10*second, "b", "c")
			require.Equal(t, "a-1 serving, b-1 dead, c-1 dead", f.roster("a"))
			n.Heal()
			f.awaitRoster("a-1 joining, b-1 serving, c-1 serving", 2*second, "a", "b", "c")
			require.NoError(t, f.clusters["a"].Announce(cluster.Serving))
			f.awaitRoster("a-1 serving, b-1 serving, c-1 serving", second, "a", "b", "c")
			n.Split([]string{"a"}, []string{"b", "c"})
			time.Sleep(600 * second)
			require.Equal(t, "a-1 serving, b-1 dead, c-1 dead", f.roster("a"))
			f.awaitRoster("a-1 serving", 10*second, "a")
		},
		"a joiner is joining until it announces that it serves, also after its death": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a", "b")
			f.join(t.Context(), "c", n.Host("c").Cluster(cluster.Config{}), echoes{})
			f.awaitRoster("a-1 serving, b-1 serving, c-1 joining", second, "a", "b", "c")
			time.Sleep(time.Minute)
			require.Equal(t, "a-1 serving, b-1 serving, c-1 joining", f.roster("a"))
			n.Host("c").Kill()
			f.awaitRoster("a-1 serving, b-1 serving, c-1 dead", 7*second, "a", "b")
			require.Equal(t, cluster.Joining, f.clusters["a"].View().Members[2].Announced)
		},
		"members that are replaced elsewhere, one by one, are forgotten Forget after the last": func(t *testing.T, n *weirtest.Network) {
			hosts := []string{"a", "b", "c", "d", "e"}
			f := newFleet(t, n, hosts...)
			var after []string
			for _, h := range hosts {
				n.Host(h).Kill()
				time.Sleep(5 * second)
				after = append(after, h+h)
				f.start(h+h, n.Host(h+h).Cluster(cluster.Config{Forget: time.Minute}))
			}
			f.awaitRoster("aa-1 serving, bb-1 serving, cc-1 serving, dd-1 serving, ee-1 serving", 70*second, after...)
		},
		"a member that died before it served is forgotten after Forget on every side": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a", "b", "c")
			f.join(t.Context(), "x", n.Host("x").Cluster(cluster.Config{}), echoes{})
			f.awaitRoster("a-1 serving, b-1 serving, c-1 serving, x-1 joining", second, "a", "b", "c")
			n.Split([]string{"a"}, []string{"b", "c"}, []string{"x"})
			f.awaitRoster("a-1 serving, b-1 dead, c-1 dead, x-1 dead", 10*second, "a")
			f.awaitRoster("a-1 serving, b-1 dead, c-1 dead", 70*second, "a")
		},
		"a kill is noticed at once, and a new start supersedes it": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a", "b")
			f.awaitRoster("a-1 serving, b-1 serving", second, "a", "b")
			n.Host("b").Kill()
			f.awaitRoster("a-1 serving, b-1 missing", 20*milli, "a")
			_, err := f.clusters["b"].View().Members[0].Peer.Ask(t.Context(), nil, nil, second)
			require.ErrorIs(t, err, cluster.ErrClosed)
			f.start("b", n.Host("b").Cluster(cluster.Config{}))
			f.awaitRoster("a-1 serving, b-2 serving", second, "a", "b")
		},
		"an owner that is killed costs one missed answer": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a", "b")
			f.awaitRoster("a-1 serving, b-1 serving", second, "a", "b")
			time.AfterFunc(500*time.Microsecond, n.Host("b").Kill)
			_, err := f.ask("a", "b", second)
			require.ErrorIs(t, err, cluster.ErrTimeout)
			_, err = f.ask("a", "b", second)
			require.ErrorIs(t, err, cluster.ErrDisconnected)
		},
		"a frozen host answers late": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a", "b")
			f.awaitRoster("a-1 serving, b-1 serving", second, "a", "b")
			n.Host("b").Freeze()
			start := time.Now()
			_, err := f.ask("a", "b", 10*milli)
			require.ErrorIs(t, err, cluster.ErrTimeout)
			require.Equal(t, 10*milli, elapsed(start))
			time.Sleep(200 * milli)
			_, err = f.ask("a", "b", 10*milli)
			require.ErrorIs(t, err, cluster.ErrStalled)
			time.Sleep(second)
			_, err = f.ask("a", "b", 10*milli)
			require.ErrorIs(t, err, cluster.ErrDisconnected)
			require.Empty(t, f.late)
			n.Host("b").Thaw()
			time.Sleep(second)
			require.Equal(t, "hello b", <-f.late)
			answer, err := f.ask("a", "b", 10*milli)
			require.NoError(t, err)
			require.Equal(t, "hello b", answer)
		},
		"an answer that was held for more than a second is not in time": func(t *testing.T, n *weirtest.Network) {
			for _, link := range [][2]string{{"a", "b"}, {"b", "a"}} {
				n.SetLink(link[0], link[1], weirtest.Link{Latency: 10 * milli})
			}
			f := newFleet(t, n, "b")
			heard := new(atomic.Int64)
			f.join(t.Context(), "a", n.Host("a").Cluster(cluster.Config{}), counting{heard: heard})
			time.Sleep(second)
			n.Host("b").Freeze()
			time.Sleep(3 * second)
			before := heard.Load()
			n.Host("b").Thaw()
			time.Sleep(25 * milli)
			require.Equal(t, before, heard.Load(), "the pong has arrived too late")
			time.Sleep(35 * milli)
			require.Greater(t, heard.Load(), before, "b was pinged again at once")
		},
		"members of other regions and seeds do not meet": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a")
			f.start("b", n.Host("b").Cluster(cluster.Config{Region: "far"}))
			f.start("c", n.Host("c").Cluster(cluster.Config{Seed: [16]byte{1}}))
			time.Sleep(10 * second)
			for _, h := range []string{"a", "b", "c"} {
				require.Equal(t, h+"-1 serving", f.roster(h))
			}
		},
		"nodes that start separately find each other after a heal": func(t *testing.T, n *weirtest.Network) {
			n.Split([]string{"a"}, []string{"b"})
			f := newFleet(t, n, "a", "b")
			require.Equal(t, "a-1 serving", f.roster("a"))
			require.Equal(t, "b-1 serving", f.roster("b"))
			n.Heal()
			f.awaitRoster("a-1 serving, b-1 serving", second, "a", "b")
		},
		"Start ends with its context, and joining continues": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a")
			n.Cut("b", "a")
			ctx, cancel := context.WithTimeout(t.Context(), 100*milli)
			defer cancel()
			start := time.Now()
			b := n.Host("b").Cluster(cluster.Config{})
			f.join(ctx, "b", b, echoes{})
			require.Equal(t, 100*milli, elapsed(start))
			require.NoError(t, b.Announce(cluster.Serving))
			n.Heal()
			f.awaitRoster("a-1 serving, b-1 serving", second, "a", "b")
		},
		"a host runs one cluster at a time": func(t *testing.T, n *weirtest.Network) {
			f := newFleet(t, n, "a")
			second := n.Host("a").Cluster(cluster.Config{})
			require.ErrorContains(t, second.Start(t.Context(), echoes{}), "runs a cluster already")
			f.close()
			require.NoError(t, second.Start(t.Context(), echoes{}))
			require.NoError(t, second.Close())
		},
	} {
		t.Run(promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { check(t, weirtest.NewNetwork(1, quick)) })
		})
	}
}

// history returns the events of a run of ten members with faults and requests, with their
// times to the nanosecond.
func history(t *testing.T, seed uint64) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		n := weirtest.NewNetwork(seed, weirtest.Link{Latency: milli, Jitter: 2 * milli, Loss: 0.01})
		start := time.Now()
		f := newFleet(t, n)
		var hosts []string
		for i := range 10 {
			hosts = append(hosts, fmt.Sprintf("h%02d", i))
			f.start(hosts[i], n.Host(hosts[i]).Cluster(cluster.Config{Forget: 20 * second}))
		}
		step := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				for i, from := range hosts {
					_, err := f.ask(from, hosts[(i+3)%10], 5*milli)
					lines = append(lines, fmt.Sprint(time.Since(start), from, err, f.roster(from)))
				}
				time.Sleep(500*milli + 7)
			}
		}
		step(2 * second)
		n.Split(hosts[:4], hosts[4:])
		step(5 * second)
		n.Host(hosts[9]).Kill()
		n.Host(hosts[3]).Freeze()
		step(5 * second)
		n.Heal()
		step(2 * second)
		n.Host(hosts[3]).Thaw()
		require.NoError(t, f.clusters[hosts[8]].Leave(t.Context()))
		step(30 * second)
	})
	return lines
}

func TestRunReplaysFromItsSeed(t *testing.T) {
	const seed = 42
	first := history(t, seed)
	require.Equal(t, first, history(t, seed), "seed %d", seed)
	require.NotEqual(t, first, history(t, seed+1), "another seed gives another run")
}
