package wire_test

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

// An asker writes a take, the owner reads it and answers, and the asker reads the answer.
func Example() {
	limit := bucket.Limit{Algorithm: bucket.SlidingWindow, Rate: 100, Per: time.Minute}
	ask := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: &limit, Units: 3}
	request := wire.Header{Op: wire.OpTake, Hops: wire.MaxHops, Asks: 1, Wait: 75 * time.Millisecond}.Append(nil)
	request = ask.Append(request)

	h, err := wire.ParseHeader(request)
	fmt.Println(h.Op == wire.OpTake, h.Wait, err)
	var numbers bucket.Limit
	asked, err := wire.ParseAsk(request, 0, &numbers)
	fmt.Println(asked.Units, numbers.Rate, numbers.Per, err)

	result := wire.Result{Source: wire.Owner, ResetNumber: 1}
	result.Allowed, result.Limit, result.Remaining = true, 100, 97
	answer := result.Append(wire.OpTake, wire.AppendResponse(nil, wire.Done, 1))

	status, err := wire.ParseResponse(answer, wire.OpTake, 1)
	fmt.Println(status == wire.Done, err)
	r := wire.ParseResult(answer, wire.OpTake, 0)
	fmt.Println(r.Allowed, r.Remaining, r.Source == wire.Owner)

	_, err = wire.ParseHeader(request[:len(request)-1])
	fmt.Println(err)
	// Output:
	// true 75ms <nil>
	// 3 100 1m0s <nil>
	// true <nil>
	// true 97 true
	// weir: malformed message
}
