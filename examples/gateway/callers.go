package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-go/weir/httplimit"
)

// callers are the tiers of the API keys that there are.
type callers map[string]string

var keyOf = httplimit.HeaderValue("X-Api-Key")

// key is the caller's API key, if there is such a key: a client that invents one is counted by
// address, and gets no fresh count for each that it tries.
func (c callers) key(r *http.Request) string {
	if key := keyOf(r); c[key] != "" {
		return key
	}
	return ""
}

func (c callers) tier(r *http.Request) string { return c[keyOf(r)] }

// readCallers reads a file, of which each line is a key and its tier.
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
			return nil, fmt.Errorf("%s:%d: write a key and its tier", path, n)
		}
	}
	return c, nil
}
