package processtests

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// lose sets the percentage of packets that are dropped on each link, in each direction and for
// both TCP and UDP. It returns the name of the method. It must be called at most once.
func (l *lan) lose(percent int) (means string) {
	l.t.Helper()
	netem := []string{"tc", "qdisc", "add", "dev", "eth0", "root", "netem", "loss", fmt.Sprint(percent, "%")}
	rule := fmt.Sprintf(`table inet loss { chain in { type filter hook input priority 0; iifname "eth0" numgen random mod 100 < %d drop; }; }`, percent)
	means = "netem"
	for i := range l.hosts {
		if means == "netem" {
			out, err := l.execute(i, netem...)
			if err == nil {
				continue
			}
			l.t.Logf("no netem here: %v %s", err, strings.TrimSpace(string(out)))
			means = "nftables"
		}
		if out, err := l.execute(i, "nft", rule); err != nil {
			l.t.Skipf("losing packets needs netem or nftables with random numbers, and neither is available: nft: %v %s", err, strings.TrimSpace(string(out)))
		}
	}
	return means
}

// resendsSoon reports whether the kernel supports the socket option TCP_RTO_MIN_US of tcp(7),
// which lets a node shorten the retransmission timeout. Linux supports it since version 6.15.
func resendsSoon(t *testing.T) bool {
	t.Helper()
	const tcpRTOMinUS = 45
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer syscall.Close(fd)
	return syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, tcpRTOMinUS, 10_000) == nil
}

// If packets are lost, some answers are late, but no member is listed as Missing or Dead.
// A member with authority decides most of the checks. The number of granted units differs from
// the limits by at most 1 %. The three subtests run in parallel, because they mostly wait.
func TestLostPacketsLoseNoMembers(t *testing.T) {
	wantsTheMachine(t)
	if testenv.Race {
		t.Skip("the race detector would slow the processes, and the test judges which member decides in time")
	}
	for _, test := range []struct{ lost, authority int }{{1, 97}, {5, 95}, {15, 85}} {
		t.Run(fmt.Sprint(test.lost, " percent"), func(t *testing.T) {
			t.Parallel()
			if test.lost > 5 && !resendsSoon(t) {
				t.Skip("this kernel resends a lost packet after 200 ms or more, which is longer than any check: TCP_RTO_MIN_US needs Linux 6.15")
			}
			const hosts = 3
			asked := load{
				Limits: []keyed{
					{weir.Limit{Name: "many units", Algorithm: weir.FixedWindow, Rate: 100, Per: time.Hour}, 160},
					{weir.Limit{Name: "few units", Algorithm: weir.FixedWindow, Rate: 5, Per: time.Hour}, 1600},
				},
				Callers: 3, Rest: time.Millisecond, For: 4 * time.Second,
			}
			l := newLAN(t, hosts)
			nodes := l.runAll(0)
			t.Logf("every link loses %d %% of packets in each direction, by %s", test.lost, l.lose(test.lost))
			reports := l.orderAll(nodes, Order{Load: &asked})

			latest := time.Duration(0)
			for _, r := range reports {
				latest = max(latest, r.Loaded.Late)
			}
			sources, checks := make(map[string]int), 0
			for i, r := range reports {
				for source, n := range r.Loaded.Sources {
					sources[source] += n
					checks += n
				}
				assert.Empty(t, r.Loaded.Errors, "checks of node %d", i)
				var gone time.Duration
				for _, a := range r.Loaded.Gone {
					gone += a.To - a.From
				}
				assert.Zero(t, len(r.Loaded.Gone), "times that %s listed a member as Missing or Dead, %v in total; the first: %+v",
					l.endpoint(i), rounded(gone), r.Loaded.Gone[:min(1, len(r.Loaded.Gone))])
				assert.LessOrEqual(t, r.Loaded.Slowest, longestCheck(defaultTimeout, latest, r.Loaded.Late), "node %d, which was woken up to %v late", i, r.Loaded.Late)
				t.Logf("%s: slowest check %v, woken up to %v late", l.endpoint(i), rounded(r.Loaded.Slowest), rounded(r.Loaded.Late))
			}
			decided := 100 * float64(byAuthority(sources)) / float64(checks)
			t.Logf("%.2f %% of %d checks decided by authority: %v", decided, checks, sources)
			assert.GreaterOrEqual(t, decided, float64(test.authority), "%% of the checks decided by authority")

			for i, k := range asked.Limits {
				var due, over, under int64
				for key := range k.Keys {
					var asked, granted int64
					for _, r := range reports {
						asked += r.Loaded.Asked[i][key]
						granted += r.Loaded.Granted[i][key]
					}
					most := min(asked, k.Limit.Rate)
					due += most
					over += max(0, granted-most)
					under += max(0, most-granted)
				}
				percent := 100 * float64(over+under) / float64(due)
				t.Logf("%s: %d keys should grant %d units; %d too many and %d too few: %.2f %%", k.Limit.Name, k.Keys, due, over, under, percent)
				assert.LessOrEqual(t, percent, 1.0, "%% of the units of %s that were granted in excess or missing", k.Limit.Name)
			}
		})
	}
}

// byAuthority returns the number of checks that members with authority decided. It includes
// checks that a pushback or a lease of such a member decided.
func byAuthority(sources map[string]int) (sum int) {
	for _, source := range []string{weir.Owner.String(), weir.Forwarded.String(), weir.Relayed.String(), "pushback", "leased"} {
		sum += sources[source]
	}
	return sum
}
