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
	"github.com/weir-go/weir/rules"
)

//go:embed files
var files embed.FS

// Options configure a Page.
type Options struct {
	Source Source // required. The page has buttons if Source is an Actor
	// Limit and Key select the count that the page shows to a viewer that has not chosen a count. If
	// one of them is empty, such a viewer sees no count.
	Limit, Key string
	// Book has the rules that viewers may switch: with a Book, every viewer can switch off all limits.
	// If nil, the page has no form for switches.
	Book *rules.Book
	// Hosts are the accepted values of the Host header, such as "127.0.0.1:8080". If empty, all
	// values are accepted. A page without a password needs Hosts, because an attacker could make the
	// name of a foreign page resolve to the address of this page (DNS rebinding).
	Hosts []string
	// Viewers is the maximum number of viewers; 16 if zero. A further viewer replaces the viewer
	// that has been connected longest, if that is ten seconds or more. Otherwise the further viewer
	// is asked to try again later.
	Viewers int
	// Runbook is the http or https URL of the instructions for operators. If empty, it is the URL of the
	// runbook in the repository of Weir, with links to its sections.
	Runbook string
	// Version is the displayed version of the program. If empty, the page shows the version of the
	// Weir module, or the revision of the program, if the build has one of them.
	Version string
}

const (
	defaultViewers = 16
	defaultRunbook = "https://github.com/weir-go/weir/blob/main/docs/runbook.md"
	module         = "github.com/weir-go/weir"
)

// The intervals of calls while there are viewers, and the maximum durations of these
// calls.
const (
	snapshotEvery = time.Second
	gatherWithin  = 900 * time.Millisecond
	topEvery      = 5 * time.Second
	topWithin     = 4 * time.Second
	watchWithin   = time.Second
	writeWithin   = 5 * time.Second
	actWithin     = 5 * time.Second
)

// Page is an http.Handler. The page is at "/", and its other paths are relative to it. Mount the page
// at a path that ends with "/", with http.StripPrefix. The page requires an http.Server, or a
// server that lets a handler set a write deadline.
type Page struct {
	source  Source
	actor   Actor       // nil without buttons
	book    *rules.Book // nil without switches
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

// New returns a Page. The error is weir.ErrInvalid if o has no Source, Viewers is negative, or
// Runbook is not a URL. The caller must call Close to stop the events for viewers.
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
		source: o.Source, book: o.Book, limit: o.Limit, key: o.Key, hosts: o.Hosts, closed: make(chan struct{}),
		viewers: cmp.Or(o.Viewers, defaultViewers), runbook: cmp.Or(o.Runbook, defaultRunbook), version: cmp.Or(o.Version, buildinfo.Version()),
	}
	p.actor, _ = o.Source.(Actor)
	return p, nil
}

// Close stops the events for viewers, and waits until the goroutines that read the Source have
// ended. The handler of a viewer may run on for up to a second in Source.Watch, and for up to five
// seconds in Actor.Act or a write. Close may be called more than once. Later requests for events are refused.
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

// policy allows the page to load only its own files, to run only its own scripts, and to be in
// no frame.
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
	case "/switch":
		method, serve = http.MethodPost, p.switchRule
	}
	if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
		h.Set("Allow", method)
		http.Error(w, "this path answers "+method, http.StatusMethodNotAllowed)
		return
	}
	serve(w, r)
}

// contentTypes are the content types of all embedded files, by extension. The types that a
// system has for these extensions vary.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".txt":  "text/plain; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file serves an embedded file.
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

// hub reads the source for all viewers, while there are any.
type hub struct {
	mu      sync.Mutex
	viewers []*viewer     // connected viewers, in order of arrival
	end     func()        // stops the goroutines; nil before the first viewer
	changed chan struct{} // closed when there is a new event
	latest  [2][]byte     // events with the last snapshot and the last top keys; each is nil before the first
	serial  [2]uint64     // number of changes of each element of latest
	members []shownMember // all members of the last snapshot; never modified
	looking sync.WaitGroup
}
