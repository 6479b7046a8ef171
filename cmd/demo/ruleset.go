package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/rules"
)

// Names in the demo's rules.
const (
	clientLimit = "client"    // limit of the traffic, which the verdict judges
	hourLimit   = "user/hour" // limit that a reload changes
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
	name  string // name of its template
	dir   string
	limit int64
	per   time.Duration
	kept  int64 // units of a kept key of a soak
}

func (r *rulesFile) text(version uint64, hourly int64) []byte {
	var text bytes.Buffer
	err := texts.ExecuteTemplate(&text, r.name, map[string]any{
		"Version": version, "Odd": version%2 == 1, "Limit": r.limit, "Per": r.per, "Hourly": hourly, "LocalRate": localRate(r.limit), "Kept": r.kept,
	})
	if err != nil {
		panic(err) // a test executes each template
	}
	return text.Bytes()
}

// write replaces the file atomically. The first call creates its directory.
func (r *rulesFile) write(version uint64, hourly int64) (err error) {
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
			return err
		}
		r.path = filepath.Join(r.dir, "rules.yaml")
	}
	return lab.Replace(r.path, r.text(version, hourly))
}

// limits returns the limits of the traffic by path, in an even version of the rules. An
// odd version has the same number of units or fewer.
func (r *rulesFile) limits() map[string]*weir.Limit {
	set, err := rules.Parse(r.name, r.text(2, hourly))
	if err != nil {
		panic(err) // a test opens each file
	}
	all := make(map[string]*weir.Limit)
	for _, rule := range set.Rules() {
		for i := range rule.Limits {
			if rule.Reserves() { // the windows of these limits also have refunded units
				continue
			}
			l := rule.Limits[i].ForTier("")
			all["/"+l.Name] = &l
		}
	}
	all["/"] = all["/"+clientLimit]
	return all
}

// change returns a description of the change that the next version makes.
func (r *rulesFile) change() string {
	if r.kept > 0 {
		return "one of its limits has other units"
	}
	return fmt.Sprintf("each user gets %s an hour, not %s", number(hourlyReloaded), number(hourly))
}

// remove removes the directory of the file with its contents, if the file was written.
func (r *rulesFile) remove() { os.RemoveAll(r.dir) }

// owned returns the number of clients whose keys this node owns.
func owned(s *rules.Snapshot) (n int) {
	l, _, ok := s.Limit(clientLimit)
	if !ok { // the rules are different if the run has regions
		return 0
	}
	for client := range clients {
		if name := clientName(client); s.Limiter(l, "", name).Owner(name).Self {
			n++
		}
	}
	return n
}
