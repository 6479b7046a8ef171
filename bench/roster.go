package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
)

// roster is a cluster that never changes: so many members, all heard, none of
// whom answers. A node on it pays for the ring's lookup and for nothing else of
// the network, as long as it is asked only for the keys that it owns.
type roster struct {
	view   cluster.View
	closed chan struct{}
}

func newRoster(members int) *roster {
	r := &roster{closed: make(chan struct{})}
	heard := make([]bool, members)
	for i := range members {
		heard[i] = true
		r.view.Members = append(r.view.Members, cluster.Member{
			Name:  fmt.Sprintf("node-%02d-0123456789abcdef", i),
			Addr:  fmt.Sprintf("192.0.2.%d:7946", i+1),
			Born:  time.Unix(1_800_000_000, 0),
			State: cluster.Serving, Announced: cluster.Serving,
			Peer: mute{},
		})
		r.view.Hears = append(r.view.Hears, heard)
	}
	r.view.Members[0].Peer = nil
	r.view.Direct = heard
	return r
}

// Start has the node hear somebody as often as it would.
func (r *roster) Start(_ context.Context, h cluster.Handler) error {
	go func() {
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				h.Heard()
			case <-r.closed:
				return
			}
		}
	}()
	return nil
}

func (r *roster) View() *cluster.View          { return &r.view }
func (r *roster) Region(string) cluster.Peer   { return nil }
func (r *roster) Announce(cluster.State) error { return nil }
func (r *roster) Forget(string) error          { return errors.New("bench: nobody is dead") }
func (r *roster) Leave(context.Context) error  { return nil }
func (r *roster) Stats() cluster.Stats         { return cluster.Stats{} }

func (r *roster) Close() error {
	close(r.closed)
	return nil
}

// mute is a peer that is not there.
type mute struct{}

func (mute) Ask(_ context.Context, _, answer []byte, _ time.Duration) ([]byte, error) {
	return answer[:0], cluster.ErrUnheard
}

func (mute) Tell([]byte) {}

func (mute) Delay() time.Duration       { return 0 }
func (mute) Protocol() cluster.Protocol { return cluster.Protocol{Version: cluster.Version} }

// ringMembers is how many members the ring of an owner has here.
const ringMembers = 10

// startOwner starts a node that is one of ringMembers. It has no replicas, because
// the other members do not exist.
func startOwner(maxKeys int) (*weir.Node, error) {
	return weir.Start(context.Background(), weir.Config{Cluster: newRoster(ringMembers), Replicas: -1, MaxKeys: maxKeys, Logger: quiet()})
}
