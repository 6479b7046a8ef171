package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"time"
)

// generations is how many snapshots of a node are kept, as by snapshot.OpenDir.
const generations = 2

// disks keeps the snapshots of all hosts across restarts.
type disks struct {
	stage *stage
	of    map[string][]kept // by host, the newest last; guarded by stage.mu
	loads []load            // guarded by stage.mu
}

// kept is a stored snapshot.
type kept struct {
	began time.Duration // when its writing began
	text  []byte
}

// load records that a node has loaded a snapshot.
type load struct {
	of    string        // the node that wrote it
	began time.Duration // when its writing began
	by    string        // the node that loaded it
	ran   time.Duration // when that node ran; never if it has not run
}

// disk is the part of the disks that one host sees: all snapshots if they are shared,
// otherwise only its own.
type disk struct {
	*disks
	host string
}

// Save implements snapshot.Store.
func (d disk) Save(_ context.Context, node string, write func(io.Writer) error) error {
	began := d.stage.now()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	d.stage.mu.Lock()
	defer d.stage.mu.Unlock()
	all := append(d.of[node], kept{began, b.Bytes()})
	d.of[node] = all[max(0, len(all)-generations):]
	return nil
}

// Load implements snapshot.Store.
func (d disk) Load(_ context.Context, mine func(string) bool, read func(string, io.Reader) error) error {
	var errs []error
	for _, h := range d.stage.hosts {
		if d.stage.Shared && (!mine(h.name) || h.region != d.stage.named[d.host].region) || !d.stage.Shared && h.name != d.host {
			continue
		}
		d.stage.mu.Lock()
		all := slices.Clone(d.of[h.name])
		d.record(load{of: h.name, by: d.host, ran: never}) // also for a host without snapshots
		d.stage.mu.Unlock()
		for _, k := range slices.Backward(all) {
			from := bytes.NewReader(k.text)
			err := read(h.name, from)
			if err == nil {
				if from.Len() == 0 { // the whole snapshot was read, not only its header
					d.stage.mu.Lock()
					d.record(load{h.name, k.began, d.host, never})
					d.stage.mu.Unlock()
				}
				break
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// record adds a load unless it is present. The caller must hold stage.mu.
func (d *disks) record(l load) {
	if !slices.Contains(d.loads, l) {
		d.loads = append(d.loads, l)
	}
}

// runs records that a node runs, so its loads are complete. The caller must hold
// stage.mu.
func (d *disks) runs(host string, now time.Duration) {
	if d == nil {
		return
	}
	for i := range d.loads {
		if l := &d.loads[i]; l.by == host && l.ran == never {
			l.ran = now
		}
	}
}

// drop deletes the newest snapshot of a host, or all its snapshots.
func (d *disks) drop(host string, all bool) {
	d.stage.mu.Lock()
	defer d.stage.mu.Unlock()
	n := len(d.of[host])
	if !all {
		n = min(n, 1)
	}
	d.of[host] = d.of[host][:len(d.of[host])-n]
}
