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

// process is one gateway's process. It ends with the demo, however that ends:
// its standard input, which takes orders, is a pipe that the demo holds open, and
// where the system can, it kills the process when the demo dies.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	last  tail          // of its standard error
	ended chan struct{} // closed when it has ended and been waited for
}

// maxReport bounds a report's line, in bytes.
const maxReport = 1 << 20

// spawn runs this program once more, as a gateway. Reports are handed to told,
// and ended is called when the process has ended, on a goroutine that ends then
// too. Call it from a goroutine that is locked to a thread which lives as long as
// the demo: some systems take that thread's end for the parent's.
func spawn(s settings, told func(report), ended func(*process)) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	what, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), gatewayEnv+"="+string(what))
	p.cmd.Stderr = &p.last
	dieWithParent(p.cmd)
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
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, maxReport)
		for lines.Scan() {
			var r report
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				r = report{At: time.Now().UnixNano(), Error: fmt.Sprintf("it reported %q: %v", lines.Text(), err)}
			}
			told(r)
		}
		p.cmd.Wait()
		close(p.ended)
		ended(p)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) kill() error { return p.cmd.Process.Kill() }

// order tells the gateway something. A pipe has room for it.
func (p *process) order(o order) error { return json.NewEncoder(p.stdin).Encode(o) }

// how says how the process ended, with its last words. Call it after ended.
func (p *process) how() string {
	how := p.cmd.ProcessState.String()
	if words := p.last.String(); words != "" {
		how += "; its last words:\n" + words
	}
	return how
}

// stop asks the process to end, and says whether it did within a time. If not,
// it is killed.
func (p *process) stop(within time.Duration) bool {
	p.stdin.Close()
	patience := time.NewTimer(within)
	defer patience.Stop()
	select {
	case <-p.ended:
		return true
	case <-patience.C:
		p.kill()
		<-p.ended
		return false
	}
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
