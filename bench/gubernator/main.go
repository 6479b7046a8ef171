package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/weir-go/weir/bench/internal/worker"
)

func main() {
	err := errors.New("go run ./bench starts this program")
	if os.Getenv(worker.RoleVariable) == worker.Name {
		err = worker.Serve(begin)()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench/gubernator: %v\n", err)
		os.Exit(1)
	}
}
