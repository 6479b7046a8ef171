package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// defaultHealth is where a node says that it is alive, unless told.
const defaultHealth = "127.0.0.1:8082"

// liveWithin is the most that a node may take to say that it is alive.
const liveWithin = 3 * time.Second

// live asks the node of this machine whether it is alive, as an image without a shell
// has its health checked.
func live(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("weir live", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() { fmt.Fprint(stderr, help) }
	addr := f.String("health", cmp.Or(os.Getenv(variable("health")), defaultHealth), "")
	if f.Parse(args) != nil || f.NArg() > 0 {
		return usage
	}
	transport := &http.Transport{DisableKeepAlives: true}
	host := *addr
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
		fmt.Fprintf(stderr, "weir live: %v: does the node run, and is -health %s right?\n", err, *addr)
		return bad
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		fmt.Fprintf(stderr, "weir live: %s answers %s: is that the -health of a node?\n", *addr, answer.Status)
		return bad
	}
	fmt.Fprintln(stdout, "alive")
	return ok
}
