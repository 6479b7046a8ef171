package main

import (
	"fmt"
	"io"
	"runtime"

	peers "github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/buildinfo"
)

// versionCommand prints the version of the command and of the peer protocol.
type versionCommand struct{}

func (versionCommand) run(stdout, _ io.Writer) (int, error) {
	_, err := fmt.Fprintf(stdout, "weir %s, %s %s/%s, peer protocol %d\n", buildinfo.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, peers.Version)
	return ok, err
}
