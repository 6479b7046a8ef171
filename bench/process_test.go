package main

import (
	"os"
	"testing"

	"github.com/weir-go/weir/bench/internal/worker"
)

func TestMain(m *testing.M) {
	roles["Member"] = func() error { return worker.ServeCalls("Member", new(service)) } // of the benchmarks
	playRole()
	os.Exit(m.Run())
}
