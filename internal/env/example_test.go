package env_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/wire"
)

// A node begins its life, runs tasks and errands in it, and ends all of them as it closes.
func ExampleLife() {
	var life env.Life
	life.Begin()
	ended := false
	life.Go(func() {
		<-life.Done()
		ended = true
	})
	errand := make(chan struct{})
	fmt.Println("an errand starts:", life.Try(func(context.Context) { close(errand) }))
	<-errand
	fmt.Println("closed:", life.Close(func() error { return nil }))
	fmt.Println("the task has ended:", ended)
	fmt.Println("one more errand starts:", life.Try(func(context.Context) {}))
	// Output:
	// an errand starts: true
	// closed: <nil>
	// the task has ended: true
	// one more errand starts: false
}

// member is a peer that answers each request with its own name.
type member string

func (m member) Ask(_ context.Context, request, answer []byte, _ time.Duration) ([]byte, error) {
	if _, err := wire.ParseHeader(request); err != nil {
		return wire.Refusal(err), nil
	}
	return append(wire.AppendResponse(answer[:0], wire.Done, 0), m...), nil
}

func (member) Send([]byte) {}

func (member) Delay() time.Duration       { return 0 }
func (member) Protocol() cluster.Protocol { return cluster.Protocol{} }

// A part of a node asks all members, two at once.
func ExampleGather() {
	members := []member{"a", "b", "c"}
	answers := make([]string, len(members))
	env.Gather(len(members), 2, func(i int) {
		answer, err := env.Call(context.Background(), members[i], wire.Header{Op: wire.OpTop, Wait: time.Second}, nil, time.Second)
		answers[i] = fmt.Sprint(string(answer), " ", err)
	})
	fmt.Println(answers)
	// Output: [a <nil> b <nil> c <nil>]
}
