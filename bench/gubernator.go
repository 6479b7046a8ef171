package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weir-go/weir/internal/snippets"
)

// buildWait bounds how long the build of gubernator may take. The first build downloads
// and compiles gubernator, and possibly downloads a newer Go.
const buildWait = 10 * time.Minute

// buildGubernator builds the program of the folder gubernator, and returns its path. The
// error is the reason why there is no program. remove deletes the program.
func buildGubernator(ctx context.Context, progress io.Writer) (program string, remove func() error, err error) {
	remove = func() error { return nil }
	root, err := snippets.Root()
	if err != nil {
		return "", remove, errors.New("not run in a checkout of weir, from which gubernator is built")
	}
	dir, err := os.MkdirTemp("", "weir-bench")
	if err != nil {
		return "", remove, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	program = filepath.Join(dir, "gubernator.exe") // Windows needs the extension, and other systems ignore it
	fmt.Fprintln(progress, "building gubernator, which takes minutes the first time")
	within, cancel := context.WithTimeout(ctx, buildWait)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(within, "go", "build", "-o", program, ".")
	cmd.Dir = filepath.Join(root, "bench", "gubernator")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN=auto")
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", remove, fmt.Errorf("gubernator was not built: %w %s", cmp.Or(within.Err(), err), lastLine(said.Bytes()))
	}
	return program, remove, nil
}

// lastLine returns the last line of the output of a command.
func lastLine(said []byte) []byte {
	said = bytes.TrimSpace(said)
	return said[bytes.LastIndexByte(said, '\n')+1:]
}
