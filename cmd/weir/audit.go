package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir/audit"
)

// auditStdout is the -audit value for standard output.
const auditStdout = "-"

// auditEnd is the maximum time for writing the last records after the node is closed.
const auditEnd = 2 * time.Second

// auditLog is the audit log of a node, with its file.
type auditLog struct {
	*audit.Log
	file *auditFile
	over chan struct{} // closed to stop the goroutine that reopens the file
	done chan struct{} // closed when that goroutine has ended
}

// openAudit starts an audit log. The log reopens its file on SIGHUP, for programs that
// rotate the file by renaming it.
func openAudit(o auditFlags, log *slog.Logger) (*auditLog, error) {
	a := &auditLog{file: &auditFile{name: o.Audit}, over: make(chan struct{}), done: make(chan struct{})}
	hups := make(chan os.Signal, 1)
	var to io.Writer = os.Stdout
	if o.Audit == auditStdout {
		signal.Ignore(syscall.SIGPIPE) // otherwise SIGPIPE would end the process when the reader of its output ends
	} else {
		signal.Notify(hups, syscall.SIGHUP) // before the file is opened, so that no rename is missed
		if err := a.file.open(); err != nil {
			signal.Ignore(syscall.SIGHUP)
			return nil, fmt.Errorf("weir serve: -audit: %w", err)
		}
		to = a.file
	}
	var err error
	if a.Log, err = audit.New(audit.JSONLines(to), audit.Options{Sample: o.AuditSample, Keys: o.AuditKeys, Clients: o.AuditClients, Logger: log}); err != nil {
		signal.Ignore(syscall.SIGHUP)
		return nil, errors.Join(fmt.Errorf("weir serve: -audit_sample: %w", err), a.file.close())
	}
	go a.reopen(hups, log)
	return a, nil
}

// reopen reopens the file at each signal, until over is closed.
func (a *auditLog) reopen(hups <-chan os.Signal, log *slog.Logger) {
	defer close(a.done)
	for {
		select {
		case <-a.over:
			return
		case <-hups:
		}
		if err := a.file.open(); err != nil {
			log.Error("the audit file was not replaced", "error", err)
			continue
		}
		log.Info("the audit file was opened again", "path", a.file.name)
	}
}

// close writes the queued records, until ctx is done. The node must be closed before. If
// the file hangs, it stays open until the process ends.
func (a *auditLog) close(ctx context.Context) error {
	signal.Ignore(syscall.SIGHUP) // not Stop: SIGHUP would then end the process
	close(a.over)
	if err := a.Log.Close(ctx); err != nil {
		return fmt.Errorf("weir serve: -audit: %s: %w", a.file.name, err)
	}
	select {
	case <-a.done:
		return a.file.close()
	case <-ctx.Done():
		return fmt.Errorf("weir serve: -audit: opening %s again: %w", a.file.name, ctx.Err())
	}
}

// metrics returns a counter for each result of a record.
func (a *auditLog) metrics() (all []prometheus.Collector) {
	for fate, count := range map[string]func(audit.Stats) uint64{
		"written": func(s audit.Stats) uint64 { return s.Written },
		"dropped": func(s audit.Stats) uint64 { return s.Dropped },
		"failed":  func(s audit.Stats) uint64 { return s.Failed },
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "weir_audit_records_total", ConstLabels: prometheus.Labels{"fate": fate},
			Help: "Records of the audit log, by fate: written, dropped because the queue was full, or failed because the process could not write the file.",
		}, func() float64 { return float64(count(a.Stats())) }))
	}
	return all
}

// auditFile is an append-only file that can be reopened during writes. An auditFile is safe for
// concurrent use.
type auditFile struct {
	name  string
	mu    sync.Mutex
	file  *os.File // nil when closed
	fresh bool     // nothing was written since the file was opened
}

// open opens the file that currently has the name, and closes the previous file. If the file cannot
// be opened, the previous file remains open. An error of closing the previous file is returned, too.
func (f *auditFile) open() error {
	file, err := openToAppend(f.name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	before := f.file
	f.file, f.fresh = file, true
	f.mu.Unlock()
	if before != nil {
		return before.Close()
	}
	return nil
}

func (f *auditFile) Write(p []byte) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return 0, os.ErrClosed
	}
	// Skip the end of a line that was cut short in the previous file.
	if f.fresh && len(p) > 0 && p[0] == '\n' {
		n = 1
	}
	f.fresh = false
	written, err := f.file.Write(p[n:])
	return n + written, err
}

func (f *auditFile) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	defer func() { f.file = nil }()
	return f.file.Close()
}

// openToAppend opens a regular file, and creates a missing file with access for this user
// only. If a killed process has left an incomplete line, that line is ended.
func openToAppend(name string) (*os.File, error) {
	// The mode is checked first, because opening a pipe waits for a reader.
	switch info, err := os.Stat(name); {
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: name one, or use %s for standard output", name, auditStdout)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil && size > 0 {
		var last [1]byte
		if _, err = file.ReadAt(last[:], size-1); err == nil && last[0] != '\n' {
			_, err = file.Write([]byte{'\n'})
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
