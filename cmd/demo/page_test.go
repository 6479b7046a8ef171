package main

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/page"
)

// fleetOf is a fleet whose gateways are all up and hear those on their side.
func fleetOf(sides ...int) *fleet {
	f := newFleet(options{nodes: len(sides), replicas: 1, limit: 10, serve: true}, time.Second, nil)
	for i, side := range sides {
		inc := &incarnation{gateway: i, condition: up, ready: true, over: make(chan struct{})}
		inc.report = report{Name: label(i) + "-1", Addr: label(i), Figures: &figures{Ring: map[string]float64{label(i) + "-1": 1}}}
		for j, other := range sides {
			state := weir.Unheard
			if other == side {
				state = weir.Serving
			}
			inc.report.Members = append(inc.report.Members, seen{label(j) + "-1", state})
		}
		f.current[i] = inc
	}
	return f
}

func TestThePageHasTheLargestSideFirst(t *testing.T) {
	require.Equal(t, []int{0, 0, 0, 0}, fleetOf(1, 1, 1).sides(), "one side is none; the last place is of a gateway that comes and goes")
	require.Equal(t, []int{2, 1, 1, 2, 1, 0}, fleetOf(1, 2, 2, 1, 2).sides())
	f := fleetOf(1, 2, 2)
	require.Equal(t, 1, f.speaker(f.sides()).gateway, "who speaks for all is of it")
	f.current[2].condition = killed
	require.Equal(t, []int{1, 2, 0, 0}, f.sides(), "who is dead is on no side")
}

func TestThePageShowsWhoIsThereAndWhatCanBeDone(t *testing.T) {
	f := fleetOf(1, 2, 2)
	f.current[2].condition = frozen
	f.current[2].down = []span{{1, never}}
	f.away[0] = true
	s := (&panorama{fleet: f, recent: &recent{per: f.per}}).Snapshot()
	require.Len(t, s.Members, 3)
	require.Equal(t, []page.Health{page.Serving, page.Missing, page.Missing}, []page.Health{s.Members[0].Health, s.Members[1].Health, s.Members[2].Health})
	require.Equal(t, "cut off", s.Members[1].State)
	require.Equal(t, "frozen", s.Members[2].State)
	require.Contains(t, s.Members[0].Note, "behind the cut")
	require.Equal(t, []page.Action{{Name: "kill"}, {Name: "freeze", Off: !lab.Signals}, {Name: "slow"}, {Name: "heal"}}, s.Members[0].Actions)
	require.Equal(t, []page.Action{{Name: "kill"}, {Name: "thaw"}, {Name: "slow"}, {Name: "cut"}}, s.Members[2].Actions)
	f.current[2].condition = killed
	require.Equal(t, []page.Action{{Name: "start"}, {Name: "freeze", Off: true}, {Name: "slow"}, {Name: "cut"}}, f.actions(2))
	require.ErrorContains(t, f.press(step{kind: kill, gateway: 2}), "kill gateway 3: it is done already")
}

func TestButtonsWaitForTheirTurnAndAreRefusedWhenThereAreTooMany(t *testing.T) {
	p := &panorama{fleet: fleetOf(1, 1), presses: make(chan press, 1)}
	require.ErrorContains(t, p.Act(t.Context(), "gateway-3", "kill"), `there is no gateway "gateway-3"`)
	require.ErrorContains(t, p.Act(t.Context(), "gateway-1", "explode"), `there is no button "explode"`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Act(ctx, "gateway-1", "kill"), context.Canceled, "nobody does it")
	require.ErrorIs(t, p.Act(t.Context(), "gateway-1", "kill"), errBusy)
	require.Equal(t, step{kind: kill}, (<-p.presses).what)
	go func() { (<-p.presses).refused <- nil }()
	require.NoError(t, p.Act(t.Context(), "gateway-2", "speed up"))
}

func TestBothEndsAreToldOfALink(t *testing.T) {
	f := fleetOf(1, 1, 1)
	f.away[1], f.slowed[1], f.slowed[2] = true, true, true
	require.Equal(t, map[string]link{"gateway-2": {true, slowBy}, "gateway-3": {false, slowBy}}, f.links(0))
	require.Equal(t, map[string]link{"gateway-1": {true, slowBy}, "gateway-3": {true, 2 * slowBy}}, f.links(1))
}

func TestServingRemembersABoundedNumberOfFaults(t *testing.T) {
	f := fleetOf(1, 1)
	for range 3 * maxKept {
		f.happened, f.deaf = append(f.happened, happening{seenBy: 1}), append(f.deaf, span{})
		f.say("kill", "again")
		f.breaks("it ended")
		ended := &incarnation{over: make(chan struct{})}
		close(ended.over)
		f.all = append(f.all, ended)
	}
	f.all = append(f.all, f.current[0])
	f.trim()
	require.Len(t, f.happened, maxKept)
	require.Len(t, f.events, maxKept)
	require.Len(t, f.deaf, maxKept)
	require.Len(t, f.broken, maxKept)
	require.Equal(t, []*incarnation{f.current[0]}, f.all)
}

func TestWhatAClientWasGrantedIsForgottenAfterItsWindow(t *testing.T) {
	r := &recent{per: time.Second}
	for at := range int64(10) {
		r.add(answer{client: 3, allowed: true, check: span{0, at * int64(time.Second) / 4}})
	}
	r.add(answer{client: 3})
	require.Equal(t, 4, r.lately(3, 9*int64(time.Second)/4))
	require.Zero(t, r.lately(3, 10*int64(time.Second)))
	require.Zero(t, r.lately(4, 0))
	require.Equal(t, 3, clientOf(clientName(3)))
	require.Equal(t, -1, clientOf("alice"))
}

// echoBoth listens by a network and sends back what it is sent.
func echoBoth(t *testing.T, n *network) (addr string) {
	t.Helper()
	tcp, udp, err := n.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { tcp.Close(); udp.Close() })
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := make([]byte, 64)
				for {
					n, err := conn.Read(b)
					if err != nil {
						return
					}
					conn.Write(b[:n])
				}
			}()
		}
	}()
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			udp.WriteTo(b[:n], from)
		}
	}()
	return tcp.Addr().String()
}

func TestACutHoldsConnectionsAndLosesPacketsUntilItHeals(t *testing.T) {
	t.Parallel()
	far, near := newNetwork(nil), newNetwork(nil)
	defer far.close()
	defer near.close()
	addr := echoBoth(t, far)
	conn, err := near.Dial(t.Context(), addr)
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, addr, conn.RemoteAddr().String())
	said, heard := []byte("hello"), make([]byte, 5)
	exchange := func(within time.Duration) error {
		conn.SetDeadline(time.Now().Add(within))
		if _, err := conn.Write(said); err != nil {
			return err
		}
		_, err := conn.Read(heard)
		return err
	}
	require.NoError(t, exchange(eventually))
	tcp, udp, err := near.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer tcp.Close()
	defer udp.Close()
	there, err := net.ResolveUDPAddr("udp", addr)
	require.NoError(t, err)
	packet := func(within time.Duration) error {
		udp.SetDeadline(time.Now().Add(within))
		if _, err := udp.WriteTo(said, there); err != nil {
			return err
		}
		_, _, err := udp.ReadFrom(heard)
		return err
	}
	require.NoError(t, packet(eventually))

	near.set(map[string]link{addr: {Cut: true}})
	const silence = 20 * time.Millisecond
	_, err = conn.Write(said)
	require.NoError(t, err)
	conn.SetReadDeadline(time.Now().Add(silence))
	_, err = conn.Read(heard)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = udp.WriteTo(said, there)
	require.NoError(t, err)
	udp.SetReadDeadline(time.Now().Add(silence))
	_, _, err = udp.ReadFrom(heard)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	short, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	_, err = near.Dial(short, addr)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	near.set(map[string]link{addr: {}})
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = conn.Read(heard)
	require.NoError(t, err, "what was under way comes")
	require.NoError(t, packet(eventually))

	near.set(map[string]link{addr: {Delay: 30 * time.Millisecond}})
	begun := time.Now()
	require.NoError(t, exchange(eventually))
	require.GreaterOrEqual(t, time.Since(begun), 60*time.Millisecond, "each way")
	begun = time.Now()
	require.NoError(t, packet(eventually))
	require.GreaterOrEqual(t, time.Since(begun), 30*time.Millisecond, "who sends it sees to it")
}
