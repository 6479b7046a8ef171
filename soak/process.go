package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is one node's process. It ends with the first one, however that ends: its
// standard input is a pipe that the first one holds open, and where the system can, it
// kills the process when that one dies.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	last  tail          // of its standard error
	ended chan struct{} // closed when it has ended, all its reports are in, and it has been waited for
}

// maxReport bounds a report's line, in bytes.
const maxReport = 16 << 20

// spawn runs this program once more, as a node. Reports are handed to told, on a
// goroutine that ends with the process. Call it from a goroutine that is locked to a
// thread which lives as long as the program: some systems take that thread's end for
// the parent's.
func spawn(s settings, told func(report)) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	what, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), nodeVariable+"="+string(what))
	p.cmd.Stderr = &p.last
	tieToParent(p.cmd)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, maxReport)
		for lines.Scan() {
			var r report
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				continue // a kill can cut a line short
			}
			told(r)
		}
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	return p, nil
}

func (p *process) order(o order) error { return json.NewEncoder(p.stdin).Encode(o) }

// end waits until the process has ended, and kills it if that takes too long.
func (p *process) end(within time.Duration) error {
	patience := time.NewTimer(within)
	defer patience.Stop()
	select {
	case <-p.ended:
		return nil
	case <-patience.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("it had not ended after %v", within)
	}
}

// how says how the process ended, with its last words. Call it after ended.
func (p *process) how() string {
	how := p.cmd.ProcessState.String()
	if words := p.last.String(); words != "" {
		how += "; its last words:\n" + words
	}
	return how
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if excess := len(t.buf) - tailBytes; excess > 0 {
		t.buf = append(t.buf[:0], t.buf[excess:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}
