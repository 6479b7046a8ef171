package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuQuota is a cgroup of a process. The process may use the given CPU time in each
// period, and is stopped for the rest of the period.
type cpuQuota struct{ dir string }

// newCPUQuota requires a cgroup tree with the cpu controller, of version 2 or 1, that
// this process may modify.
func newCPUQuota(pid int, quota, period time.Duration) (*cpuQuota, error) {
	name := fmt.Sprintf("weir-bench-%d", pid)
	second := map[string]string{"cpu.max": fmt.Sprint(quota.Microseconds(), " ", period.Microseconds())}
	first := map[string]string{
		"cpu.cfs_period_us": strconv.FormatInt(period.Microseconds(), 10),
		"cpu.cfs_quota_us":  strconv.FormatInt(quota.Microseconds(), 10),
	}
	// A child has the controller only if its parent enables it for its children.
	handOn := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu"), 0)
	q, err := enter(filepath.Join("/sys/fs/cgroup", name), pid, second)
	if err == nil {
		return q, nil
	}
	q, err1 := enter(filepath.Join("/sys/fs/cgroup/cpu", name), pid, first)
	if err1 != nil {
		return nil, errors.Join(handOn, err, err1)
	}
	return q, nil
}

// enter creates a cgroup and moves the process into it.
func enter(dir string, pid int, settings map[string]string) (*cpuQuota, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	q := &cpuQuota{dir}
	for file, value := range settings {
		if err := q.set(file, value); err != nil {
			_ = q.remove()
			return nil, err
		}
	}
	if err := q.set("cgroup.procs", strconv.Itoa(pid)); err != nil {
		_ = q.remove()
		return nil, err
	}
	return q, nil
}

// set writes to an existing file. It creates no file, so that it fails outside a cgroup
// tree.
func (q *cpuQuota) set(file, value string) error {
	f, err := os.OpenFile(filepath.Join(q.dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// throttled returns the fraction of periods in which the process was stopped.
func (q *cpuQuota) throttled() float64 {
	stat, _ := os.ReadFile(filepath.Join(q.dir, "cpu.stat"))
	var periods, stopped float64
	for line := range strings.Lines(string(stat)) {
		_, _ = fmt.Sscanf(line, "nr_periods %g", &periods)
		_, _ = fmt.Sscanf(line, "nr_throttled %g", &stopped)
	}
	return stopped / max(1, periods)
}

// remove removes the cgroup. The process must have ended.
func (q *cpuQuota) remove() error { return os.Remove(q.dir) }
