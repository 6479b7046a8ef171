//go:build !linux

package main

import (
	"errors"
	"time"
)

type cpuQuota struct{}

func newCPUQuota(int, time.Duration, time.Duration) (*cpuQuota, error) {
	return nil, errors.New("only Linux has cgroups")
}

func (*cpuQuota) throttled() float64 { return 0 }
func (*cpuQuota) remove() error      { return nil }
