package etcdrules

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/weir-go/weir"
)

const (
	defaultPoll = 5 * time.Second
	timeout     = 5 * time.Second  // default of Client.DialTimeout
	keepalive   = 10 * time.Second // interval of the pings on a connection; gRPC allows no shorter interval
	pingTimeout = 3 * time.Second  // maximum time of a response to a ping
	maxResponse = 4 << 20          // bytes; more than the values that etcd stores by default
)

// Options are the options of [New]. Client.Endpoints and Key are required.
type Options struct {
	// Client configures the client of etcd: Endpoints, TLS, Username and Password. Its
	// DialTimeout also bounds a read. Zero values mean: 5 s for DialTimeout, 10 s for
	// DialKeepAliveTime, 3 s for DialKeepAliveTimeout, and 4 MiB for MaxCallRecvMsgSize.
	// Without a Logger and a LogConfig, the client logs nothing. The Context has no effect.
	Client clientv3.Config
	// Key is the key whose value is the text of the rules.
	Key string
	// Poll is the interval at which the key is read although no change was reported. 0 means
	// 5 s.
	Poll time.Duration
}

// normalize returns the Options with defaults, and an error that names each invalid field.
func (o Options) normalize() (Options, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w etcdrules.Options: %s", weir.ErrInvalid, fmt.Sprintf(format, args...)))
	}
	if len(o.Client.Endpoints) == 0 {
		wrong("Client.Endpoints is empty: name at least one endpoint")
	}
	if o.Key == "" {
		wrong("Key is empty: use the key whose value is the text of the rules")
	}
	if o.Poll < 0 {
		wrong("Poll is %v: use a positive time, or 0 for %v", o.Poll, defaultPoll)
	}
	o.Poll = cmp.Or(o.Poll, defaultPoll)
	c := &o.Client
	c.DialTimeout = cmp.Or(c.DialTimeout, timeout)
	c.DialKeepAliveTime = cmp.Or(c.DialKeepAliveTime, keepalive)
	c.DialKeepAliveTimeout = cmp.Or(c.DialKeepAliveTimeout, pingTimeout)
	c.MaxCallRecvMsgSize = cmp.Or(c.MaxCallRecvMsgSize, maxResponse)
	if c.Logger == nil && c.LogConfig == nil {
		c.Logger = zap.NewNop()
	}
	return o, errors.Join(errs...)
}
