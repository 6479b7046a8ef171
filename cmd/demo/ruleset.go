package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-go/weir/rules"
)

// Names in the demo's rules.
const (
	clientLimit = "client"    // of the traffic, which the verdict judges
	hourLimit   = "user/hour" // what a reload and an override change
)

// What each user gets in an hour: at first, by the second version of the rules,
// and by the override.
const (
	hourly         = 1000
	hourlyReloaded = 2000
	hourlyGranted  = 5000
)

const rulesText = `# The rules of Weir's demo: per client, address, user, tier and endpoint; with a
# queue, an overrun, a cost and a shadow.
version: %d

tiers:
  free: {}
  premium: {}
default_tier: free
exempt: {user: monitoring}

rules:
  # The demo's own traffic. The verdict judges every window of every client.
  - name: client
    match: {path: "/{$}"}
    key: header:X-Client
    limit: {algorithm: sliding_log, rate: %d, per: %v}

  # Whoever asks from one address.
  - name: address
    match: {path: /v1/}
    key: ip
    limit: {rate: 200, per: 10s}

  # A user, wherever from: a burst, and a quota that lasts. Premium has more.
  - name: user
    match: {path: /v1/}
    key: user
    missing_key: skip
    limits:
      - name: burst
        algorithm: token_bucket
        rate: 10
        per: 1s
        burst: 20
        tiers: {premium: {rate: 100, per: 1s, burst: 200}}
      - name: hour
        algorithm: fixed_window
        rate: %d
        per: 1h
        tiers: {premium: {rate: 100000, per: 1h}}

  # One endpoint that costs more than others.
  - name: search
    match: {method: GET, path: /v1/search}
    key: [user, ip]
    limit: {algorithm: sliding_log, rate: 3, per: 10s}

  # Exports wait for their turn, one in 2 s, instead of being denied.
  - name: exports
    match: {method: POST, path: /v1/exports}
    key: user
    limit: {algorithm: leaky_bucket, rate: 30, per: 1m, burst: 4}
    queue: 5s

  # Uploads cost what they weigh: 100 KiB a day, and half as much again that is
  # marked. One that does not say its length costs all of it.
  - name: uploads
    match: {method: PUT, path: /v1/files/}
    key: user
    cost: {from: content_length, unit: 1024, default: 100}
    limit: {rate: 100, calendar: day}
    soft: {over: 50%%, for: 1h}

  # What a limit on all together would deny: it denies nothing.
  - name: everyone
    match: {path: /v1/}
    key: global
    limit: {rate: 50, per: 1s}
    shadow: true
`

// rulesFile is the file that all gateways watch.
type rulesFile struct {
	path  string
	dir   string // of the demo's own file, empty if it is the user's
	limit int64
	per   time.Duration
}

// create puts the first version of the demo's own file in a directory of its own.
func (r *rulesFile) create() error { return r.place(r.text(1, hourly)) }

// place puts a text in a directory of the demo's own.
func (r *rulesFile) place(text string) (err error) {
	if r.dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
		return err
	}
	r.path = filepath.Join(r.dir, "rules.yaml")
	return r.swap(text)
}

// write swaps a version in.
func (r *rulesFile) write(version uint64, hourly int64) error { return r.swap(r.text(version, hourly)) }

func (r *rulesFile) text(version uint64, hourly int64) string {
	return fmt.Sprintf(rulesText, version, r.limit, r.per, hourly)
}

// swap swaps a text in: who reads sees the old one or the new one.
func (r *rulesFile) swap(text string) error {
	next := r.path + ".new"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, r.path)
}

// remove leaves nothing behind but a file that is the user's.
func (r *rulesFile) remove() {
	if r.dir != "" {
		os.RemoveAll(r.dir)
	}
}

// owned is how many clients' keys this node owns, 0 without a rule for clients.
func owned(s *rules.Snapshot) (n int) {
	l, _, ok := s.Limit(clientLimit)
	if !ok {
		return 0
	}
	for client := range clients {
		if name := clientName(client); s.Limiter(l, "", name).Owner(name).Self {
			n++
		}
	}
	return n
}
