package snapshot_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/snapshot"
)

// A count survives a stop of the only node.
func ExampleOpenDir() {
	path, err := os.MkdirTemp("", "snapshots") // in a service: a directory that survives a restart
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(path)
	ctx := context.Background()
	for range 2 { // the second time, the node loads the snapshot of the first time
		dir, err := snapshot.OpenDir(path, snapshot.DirOptions{})
		if err != nil {
			panic(err)
		}
		node, err := weir.Start(ctx, weir.Config{Snapshots: dir})
		if err != nil {
			panic(err)
		}
		perDay, err := node.Limiter(weir.Limit{Name: "per day", Algorithm: weir.SlidingLog, Rate: 10, Per: 24 * time.Hour})
		if err != nil {
			panic(err)
		}
		d, _ := perDay.AllowN(ctx, "ada", 3)
		fmt.Println(d.Remaining)
		fmt.Println(node.Leave(ctx), node.Close(), dir.Close())
	}
	// Output:
	// 7
	// <nil> <nil> <nil>
	// 4
	// <nil> <nil> <nil>
}
