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
	hourLimit   = "user/hour" // that a reload changes
)

// The quota of each user for an hour, in the first and the second version of the rules.
const (
	hourly         = 1000
	hourlyReloaded = 2000
)

//go:embed files
var files embed.FS

// texts are the files, as templates.
var texts = template.Must(template.ParseFS(files, "files/*"))

// rulesFile is the file that all gateways watch.
type rulesFile struct {
	path  string
	name  string // of its template
	dir   string
	limit int64
	per   time.Duration
}

// write replaces the file atomically. The first call creates its directory.
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

// remove removes the file, if it was written.
func (r *rulesFile) remove() {
	if r.dir != "" {
		os.RemoveAll(r.dir)
	}
}

// owned returns the number of clients whose keys this node owns.
func owned(s *rules.Snapshot) (n int) {
	l, _, ok := s.Limit(clientLimit)
	if !ok { // regions have other rules
		return 0
	}
	for client := range clients {
		if name := clientName(client); s.Limiter(l, "", name).Owner(name).Self {
			n++
		}
	}
	return n
}
