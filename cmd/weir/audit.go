package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir/audit"
)

// auditOptions say what is recorded, and where.
type auditOptions struct {
	file   string
	sample float64
	keys   bool
}

// auditEnd is the most that the last records take to be written, once the node is closed.
const auditEnd = 2 * time.Second

// auditLog is the audit log of a node, and its file.
type auditLog struct {
	*audit.Log
	file *auditFile
	hups chan os.Signal
	done chan struct{}
}

// openAudit begins an audit log. It opens its file again on SIGHUP, for those who rotate
// it by renaming it.
func openAudit(o auditOptions, log *slog.Logger) (*auditLog, error) {
	a := &auditLog{file: &auditFile{name: o.file}, hups: make(chan os.Signal, 1), done: make(chan struct{})}
	var to io.Writer = os.Stdout
	if o.file != "-" {
		if err := a.file.open(); err != nil {
			return nil, fmt.Errorf("weir serve: -audit: %w", err)
		}
		to = a.file
	}
	var err error
	if a.Log, err = audit.New(audit.JSONLines(to), audit.Options{Sample: o.sample, Keys: o.keys, Logger: log}); err != nil {
		return nil, errors.Join(fmt.Errorf("weir serve: -audit_sample: %w", err), a.file.close())
	}
	if o.file != "-" {
		signal.Notify(a.hups, syscall.SIGHUP)
	}
	go func() {
		defer close(a.done)
		for range a.hups {
			if err := a.file.open(); err != nil {
				log.Error("the audit file was not opened again: records go on to the one before", "error", err)
				continue
			}
			log.Info("the audit file was opened again", "path", o.file)
		}
	}()
	return a, nil
}

// close writes what is queued. The node is closed before it.
func (a *auditLog) close() error {
	signal.Stop(a.hups)
	close(a.hups)
	<-a.done
	ctx, cancel := context.WithTimeout(context.Background(), auditEnd)
	defer cancel()
	return errors.Join(a.Log.Close(ctx), a.file.close())
}

// metrics are what became of the records.
func (a *auditLog) metrics() (all []prometheus.Collector) {
	for fate, count := range map[string]func(audit.Stats) uint64{
		"written": func(s audit.Stats) uint64 { return s.Written },
		"dropped": func(s audit.Stats) uint64 { return s.Dropped },
		"failed":  func(s audit.Stats) uint64 { return s.Failed },
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "weir_audit_records_total", ConstLabels: prometheus.Labels{"fate": fate},
			Help: "Records of the audit log, by what became of them: those that were dropped found the queue full, and of those that failed the file said why.",
		}, func() float64 { return float64(count(a.Stats())) }))
	}
	return all
}

// auditFile is a file that is appended to, and may be opened again meanwhile. It is safe
// for concurrent use.
type auditFile struct {
	name string
	mu   sync.Mutex
	file *os.File // nil while it is closed
}

// open opens the file that has the name now. On an error the one before stays.
func (f *auditFile) open() error {
	file, err := os.OpenFile(f.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	f.mu.Lock()
	before := f.file
	f.file = file
	f.mu.Unlock()
	if before != nil {
		return before.Close()
	}
	return nil
}

func (f *auditFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return 0, os.ErrClosed
	}
	return f.file.Write(p)
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
