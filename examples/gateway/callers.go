package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-go/weir/httplimit"
)

// callers contains the tiers of the known API keys.
type callers map[string]string

var keyOf = httplimit.HeaderValue("X-Api-Key")

// key returns the caller's API key if it is known. A client with an invented key is
// counted by address, and gets no new count for each invented key.
func (c callers) key(r *http.Request) string {
	if key := keyOf(r); c[key] != "" {
		return key
	}
	return ""
}

func (c callers) tier(r *http.Request) string { return c[keyOf(r)] }

// readCallers reads a file in which each line has a key and its tier.
func readCallers(path string) (callers, error) {
	c := make(callers)
	if path == "" {
		return c, nil
	}
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		switch fields := strings.Fields(line); len(fields) {
		case 0:
		case 2:
			c[fields[0]] = fields[1]
		default:
			return nil, fmt.Errorf("%s:%d: the line must have two words: write a key and its tier", path, n)
		}
	}
	return c, nil
}
