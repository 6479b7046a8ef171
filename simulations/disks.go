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
	stage     *stage
	snapshots map[string][]keptSnapshot // keyed by host, the newest last; guarded by stage.mu
	loads     []snapshotLoad            // guarded by stage.mu
}

type keptSnapshot struct {
	began time.Duration // when the writing of the snapshot began
	text  []byte
}

// snapshotLoad records that a node has loaded a snapshot.
type snapshotLoad struct {
	writer string        // the node that wrote it
	began  time.Duration // when the writing of the snapshot began
	reader string        // the node that loaded it
	ran    time.Duration // when that node ran; never if it has not run
}

// disk is the part of the disks that one host sees: the snapshots of all hosts of its
// region if snapshots are shared, and otherwise only its own snapshots.
type disk struct {
	*disks
	host string
}

// Save implements snapshot.Store.
func (d disk) Save(_ context.Context, node string, write func(io.Writer) error) error {
	began := d.stage.elapsed()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	d.stage.mu.Lock()
	defer d.stage.mu.Unlock()
	all := append(d.snapshots[node], keptSnapshot{began, b.Bytes()})
	d.snapshots[node] = all[max(0, len(all)-generations):]
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
		all := slices.Clone(d.snapshots[h.name])
		d.record(snapshotLoad{writer: h.name, reader: d.host, ran: never}) // also for a host without snapshots
		d.stage.mu.Unlock()
		for _, k := range slices.Backward(all) {
			from := bytes.NewReader(k.text)
			err := read(h.name, from)
			if err == nil {
				if from.Len() == 0 { // the whole snapshot was read, not only its header
					d.stage.mu.Lock()
					d.record(snapshotLoad{h.name, k.began, d.host, never})
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
func (d *disks) record(l snapshotLoad) {
	if !slices.Contains(d.loads, l) {
		d.loads = append(d.loads, l)
	}
}

// recordRun records that a node runs, so its loads are complete. The caller must hold
// stage.mu.
func (d *disks) recordRun(host string, now time.Duration) {
	if d == nil {
		return
	}
	for i := range d.loads {
		if l := &d.loads[i]; l.reader == host && l.ran == never {
			l.ran = now
		}
	}
}

// drop deletes the newest snapshot of a host, or all its snapshots.
func (d *disks) drop(host string, all bool) {
	d.stage.mu.Lock()
	defer d.stage.mu.Unlock()
	n := len(d.snapshots[host])
	if !all {
		n = min(n, 1)
	}
	d.snapshots[host] = d.snapshots[host][:len(d.snapshots[host])-n]
}
