package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
)

// Only the third check is denied and recorded.
func Example() {
	ctx := context.Background()
	var file bytes.Buffer // or os.Stdout, or a file opened with os.O_APPEND
	auditLog, err := audit.New(audit.JSONLines(&file), audit.Options{})
	if err != nil {
		panic(err)
	}
	node, err := weir.Start(ctx, weir.Config{Observer: auditLog})
	if err != nil {
		panic(err)
	}
	exports, err := node.Limiter(weir.Limit{Name: "exports", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Hour})
	if err != nil {
		panic(err)
	}
	for range 3 {
		if _, err := exports.Allow(ctx, "user 4711"); err != nil {
			panic(err)
		}
	}
	_ = node.Close()
	if err := auditLog.Close(ctx); err != nil { // ctx should have a deadline
		panic(err)
	}

	var r audit.Record
	for d := json.NewDecoder(&file); d.More(); {
		if err := d.Decode(&r); err != nil {
			panic(err)
		}
		fmt.Println(r.Limit, r.Allowed, r.Source, r.Key == "", r.ID == exports.ID("user 4711"))
	}
	fmt.Printf("%+v\n", auditLog.Stats())
	// Output:
	// exports false owner true true
	// {Queued:0 Written:1 Dropped:0 Failed:0}
}
