package main

import (
	"bytes"
	"embed"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/weir-go/weir/internal/lab"
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

//go:embed files
var files embed.FS

// texts are the files, as templates.
var texts = template.Must(template.ParseFS(files, "files/*"))

// rulesFile is the file that all gateways watch.
type rulesFile struct {
	path  string
	name  string // of its template
	dir   string // of the demo's own file, empty if it is the user's
	limit int64
	per   time.Duration
}

// write swaps a version in: a reader sees the one before it or this one, and never a part. The
// first is put into a directory of the demo's own.
func (r *rulesFile) write(version uint64, hourly int64) (err error) {
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
			return err
		}
		r.path = filepath.Join(r.dir, "rules.yaml")
	}
	var text bytes.Buffer
	if err := texts.ExecuteTemplate(&text, r.name, map[string]any{
		"Version": version, "Limit": r.limit, "Per": r.per, "Hourly": hourly, "LocalRate": localRate(r.limit),
	}); err != nil {
		return err
	}
	return lab.Replace(r.path, text.Bytes())
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
