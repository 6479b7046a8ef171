package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// liveWithin is the timeout of the request to the node.
const liveWithin = 3 * time.Second

// liveCommand checks whether the node of this machine is alive. An image without a shell
// uses this command as its health check.
type liveCommand struct {
	Health string `default:"127.0.0.1:8082" env:"WEIR_HEALTH" help:"the address of the node's flag -health"`
}

func (c *liveCommand) run(stdout, _ io.Writer) (int, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	host := c.Health
	if path, ok := strings.CutPrefix(host, unixPrefix); ok {
		host = "weir"
		transport.DialContext = dialUnix(path)
	} else if name, port, err := net.SplitHostPort(host); err == nil && (name == "" || net.ParseIP(name).IsUnspecified()) {
		host = net.JoinHostPort("localhost", port) // a listen address without a host refers to this machine
	}
	answer, err := (&http.Client{Transport: transport, Timeout: liveWithin}).Get("http://" + host + "/live")
	if err != nil {
		return bad, fmt.Errorf("weir live: %w: check that the node runs, and that its -health is %s", err, c.Health)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return bad, fmt.Errorf("weir live: %s answers %s: check that this is the -health of a node", c.Health, answer.Status)
	}
	fmt.Fprintln(stdout, "alive")
	return ok, nil
}

// dialUnix returns a dial function for a UNIX socket, which ignores the address.
func dialUnix(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}
