package page

import (
	"cmp"
	"embed"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/buildinfo"
)

//go:embed files
var files embed.FS

// Options say what a page shows and to whom.
type Options struct {
	Source Source // required. One that is an Actor has buttons
	// Limit and Key are what a viewer watches who has not chosen. Empty: nothing.
	Limit, Key string
	// Hosts are the values of the Host header that are answered, such as
	// "127.0.0.1:8080"; any if empty. A page that asks for no password needs them: a
	// name of a foreign page could be made to lead to its address (DNS rebinding).
	Hosts []string
	// Viewers bounds how many look at once; 16 if zero. One more gets the place of the
	// viewer that came first, if that one has had it for ten seconds, and is asked to
	// try later otherwise.
	Viewers int
	// Runbook is a link to what operators do about what the page shows, an http or https
	// URL. If empty, it is the runbook of Weir's repository, whose sections the page knows.
	Runbook string
	// Version is shown as that of the program. If empty, it is that of the Weir module, or
	// the program's revision, as far as the build has them.
	Version string
}

const (
	defaultViewers = 16
	defaultRunbook = "https://github.com/weir-go/weir/blob/main/docs/runbook.md"
	module         = "github.com/weir-go/weir"
)

// How often things are looked at while somebody is there to see them, and how long they
// may take.
const (
	snapshotEvery = time.Second
	gatherWithin  = 900 * time.Millisecond
	topEvery      = 5 * time.Second
	topWithin     = 4 * time.Second
	watchWithin   = time.Second
	writeWithin   = 5 * time.Second
	actWithin     = 5 * time.Second
)

// Page is an http.Handler. The page is at "/", and all else beside it: mount it at a path
// that ends with "/" by http.StripPrefix. It needs an http.Server, or what lets a
// handler set a deadline for what it writes.
type Page struct {
	source  Source
	actor   Actor // nil without buttons
	limit   string
	key     string
	hosts   []string
	viewers int
	runbook string
	version string
	csrf    http.CrossOriginProtection

	closed chan struct{}
	hub    hub
}

// New returns a page. The error is weir.ErrInvalid if o has no Source, Viewers is below
// zero, or Runbook is no URL. Close it to end what its viewers are sent.
func New(o Options) (*Page, error) {
	if o.Source == nil {
		return nil, fmt.Errorf("%w page.Options: Source is nil: give it a *page.Node", weir.ErrInvalid)
	}
	if o.Viewers < 0 {
		return nil, fmt.Errorf("%w page.Options: Viewers is %d: use 0 for %d, or more", weir.ErrInvalid, o.Viewers, defaultViewers)
	}
	if link, err := url.Parse(o.Runbook); err != nil || o.Runbook != "" && (link.Scheme != "https" && link.Scheme != "http" || link.Host == "") {
		return nil, fmt.Errorf("%w page.Options: Runbook is %q: use an http or https URL", weir.ErrInvalid, o.Runbook)
	}
	p := &Page{
		source: o.Source, limit: o.Limit, key: o.Key, hosts: o.Hosts, closed: make(chan struct{}),
		viewers: cmp.Or(o.Viewers, defaultViewers), runbook: cmp.Or(o.Runbook, defaultRunbook), version: cmp.Or(o.Version, buildinfo.Version()),
	}
	p.actor, _ = o.Source.(Actor)
	return p, nil
}

// Close ends what viewers are sent, and returns when nothing of the page runs but what
// is being written. It may be called more than once; what is asked afterwards is refused.
func (p *Page) Close() error {
	p.hub.mu.Lock()
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	p.hub.mu.Unlock()
	p.hub.looking.Wait()
	return nil
}

// policy lets the page load what is beside it and nothing else, run no script of
// another's, and be in nobody's frame.
var policy = strings.Join([]string{
	"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
	"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
}, "; ")

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if len(p.hosts) > 0 && !slices.Contains(p.hosts, r.Host) {
		http.Error(w, fmt.Sprintf("this page is at %s, not at %q", strings.Join(p.hosts, " or "), r.Host), http.StatusMisdirectedRequest)
		return
	}
	if err := p.csrf.Check(r); err != nil {
		http.Error(w, "the request comes from a page of another origin", http.StatusForbidden)
		return
	}
	method, serve := http.MethodGet, p.file
	switch r.URL.Path {
	case "/events":
		serve = p.events
	case "/members":
		serve = p.members
	case "/act":
		method, serve = http.MethodPost, p.act
	}
	if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
		h.Set("Allow", method)
		http.Error(w, "this path answers "+method, http.StatusMethodNotAllowed)
		return
	}
	serve(w, r)
}

// contentTypes are those of all files that there are, by extension: what a system takes
// them for varies.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".txt":  "text/plain; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file serves one of the embedded files.
func (p *Page) file(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	name = cmp.Or(name, "index.html")
	body, err := files.ReadFile("files/" + name)
	if err != nil || strings.Contains(name, "/") {
		http.Error(w, "there is nothing at this path", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

// hub looks at the source for all viewers, while there are any.
type hub struct {
	mu      sync.Mutex
	viewers []*viewer     // those that have a place, in the order in which they came
	end     func()        // of looking, nil while nobody looks
	changed chan struct{} // closed when there is something new
	latest  [2][]byte     // the last snapshot and the last top keys, as they are sent; nil before the first
	serial  [2]uint64     // how often each has changed
	members []shownMember // all members of the last snapshot; never modified
	looking sync.WaitGroup
}
