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

func (c *liveCommand) run(stdout, stderr io.Writer) int {
	transport := &http.Transport{DisableKeepAlives: true}
	host := c.Health
	if path, ok := strings.CutPrefix(host, unixPrefix); ok {
		host = "weir"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	} else if name, port, err := net.SplitHostPort(host); err == nil && (name == "" || net.ParseIP(name).IsUnspecified()) {
		host = net.JoinHostPort("localhost", port) // what it listens on says not where
	}
	answer, err := (&http.Client{Transport: transport, Timeout: liveWithin}).Get("http://" + host + "/live")
	if err != nil {
		fmt.Fprintf(stderr, "weir live: %v: does the node run, and is -health %s right?\n", err, c.Health)
		return bad
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		fmt.Fprintf(stderr, "weir live: %s answers %s: is that the -health of a node?\n", c.Health, answer.Status)
		return bad
	}
	fmt.Fprintln(stdout, "alive")
	return ok
}
