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

// liveWithin is the most that a node may take to say that it is alive.
const liveWithin = 3 * time.Second

// liveCommand asks the node of this machine whether it is alive, as an image without a
// shell has its health checked.
type liveCommand struct {
	Health string `default:"127.0.0.1:8082" env:"WEIR_HEALTH" help:"where the node answers, as its own -health says"`
}

func (c *liveCommand) run(stdout, _ io.Writer) (int, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	host := c.Health
	if path, ok := strings.CutPrefix(host, unixPrefix); ok {
		host = "weir"
		transport.DialContext = dialUnix(path)
	} else if name, port, err := net.SplitHostPort(host); err == nil && (name == "" || net.ParseIP(name).IsUnspecified()) {
		host = net.JoinHostPort("localhost", port) // what it listens on says not where
	}
	answer, err := (&http.Client{Transport: transport, Timeout: liveWithin}).Get("http://" + host + "/live")
	if err != nil {
		return bad, fmt.Errorf("weir live: %w: does the node run, and is -health %s right?", err, c.Health)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return bad, fmt.Errorf("weir live: %s answers %s: is that the -health of a node?", c.Health, answer.Status)
	}
	fmt.Fprintln(stdout, "alive")
	return ok, nil
}

// dialUnix returns what dials a UNIX socket, whatever the address.
func dialUnix(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}
