package page

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
	"github.com/weir-go/weir/internal/lab"
)

// fake is a Source and an Actor. It counts its calls.
type fake struct {
	mu        sync.Mutex
	snapshots int
	acted     []string
	refuse    error
}

func (f *fake) Snapshot() Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snapshots++
	return Snapshot{
		Name: "fake", Limits: []string{"per user"},
		Members: []Member{{ID: "a", Name: "a", State: "up", Health: Serving, Share: 1, Process: "a-1", Actions: []Action{{Name: "kill"}}}},
		Counters: []Counters{{Process: "a-1", Decisions: map[weir.Source]weir.Outcomes{
			weir.Owner: {Allowed: uint64(f.snapshots) * 10},
		}}},
		Outage: weir.OutageStats{Since: time.Unix(7, 0), Missing: []string{"b"}, Decisions: 3},
	}
}

func (f *fake) snapshotCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snapshots
}

func (f *fake) Top(context.Context) (weir.TopKeys, error) {
	return weir.TopKeys{
		Asked:  []weir.TopKey{{Limit: "per user", ID: [16]byte{1}, Key: "<script>", Known: true, Asks: 5}},
		Denied: []weir.TopKey{{Limit: "per user", ID: [16]byte{2}, Key: "", Denials: 3}, {Limit: "per user", ID: [16]byte{3}, Key: "…cdef", Known: true, Masked: true}}, Missing: []string{"b"},
		Held: []weir.HeldKey{{TopKey: weir.TopKey{Limit: "streams", ID: [16]byte{4}, Key: "…cdef", Known: true, Masked: true, Denials: 2}, Held: 3, Most: 4}},
	}, nil
}

func (f *fake) Watch(_ context.Context, limit, key string) (Watched, error) {
	if limit != "per user" {
		return Watched{}, fmt.Errorf("there is no limit %q", limit)
	}
	return Watched{Limit: 10, Used: int64(len(key)), Per: time.Minute, Owner: "a", Source: "budget", Counted: -1}, nil
}

func (f *fake) Act(_ context.Context, member, action string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acted = append(f.acted, action+" "+member)
	return f.refuse
}

// mute is a Source without buttons.
type mute struct{ Source }

func newPage(t testing.TB, o Options) *Page {
	t.Helper()
	p, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// serve starts a server with a page. The events end before the server.
func serve(t testing.TB, o Options) (p *Page, url string) {
	t.Helper()
	p = newPage(t, o)
	server := httptest.NewServer(p)
	t.Cleanup(func() { p.Close(); server.Close() })
	return p, server.URL
}

// kill sends an action.
func kill(t *testing.T, url string) (status int, text string) {
	t.Helper()
	response, err := http.Post(url+"/act", "application/json", strings.NewReader(`{"member":"a","action":"kill"}`))
	require.NoError(t, err)
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(b)
}

// reader reads events from a page.
type reader struct {
	t     testing.TB
	lines *bufio.Scanner
}

// readEvent reads the next event with the given name into into.
func (v *reader) readEvent(name string, into any) {
	v.t.Helper()
	for v.lines.Scan() {
		if v.lines.Text() != "event: "+name {
			continue
		}
		require.True(v.t, v.lines.Scan())
		data, ok := strings.CutPrefix(v.lines.Text(), "data: ")
		require.True(v.t, ok, v.lines.Text())
		require.NoError(v.t, json.Unmarshal([]byte(data), into))
		return
	}
	v.t.Fatalf("no further event %q: %v", name, v.lines.Err())
}

func look(t testing.TB, url string) (*reader, *http.Response) {
	t.Helper()
	return lookBy(t, http.DefaultClient, url)
}

func lookBy(t testing.TB, client *http.Client, url string) (*reader, *http.Response) {
	t.Helper()
	response, err := client.Get(url)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return &reader{t, lines}, response
}

func TestViewerReceivesSnapshotsTopKeysAndWatchedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, Options{Source: &fake{}})
		defer p.Close()
		l := lab.ListenPipe()
		server := &http.Server{Handler: p}
		go server.Serve(l)
		defer server.Close()
		client := &http.Client{Transport: &http.Transport{DialContext: l.DialContext}}
		defer client.CloseIdleConnections()
		v, response := lookBy(t, client, "http://page/events?limit=per+user&key=alice")
		require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))

		var s shownSnapshot
		v.readEvent(eventSnapshot, &s)
		require.Equal(t, "fake", s.Name)
		require.Nil(t, s.Checks, "no rates before the second look")
		require.Equal(t, &shownOutage{7000, []string{"b"}, 3}, s.Outage)
		require.Equal(t, []Action{{Name: "kill"}}, s.Members[0].Actions)
		var w shownWatched
		v.readEvent(eventKey, &w)
		require.Equal(t, "alice", w.Key)
		require.EqualValues(t, 5, w.Used)
		require.EqualValues(t, 10, w.Grants)
		require.Equal(t, byShares, w.By)
		v.readEvent(eventSnapshot, &s)
		require.Len(t, s.Checks, 1)
		require.EqualValues(t, 10, s.Checks[0].Allowed, "a second has passed")
		require.Equal(t, s.Checks[0].Allowed, s.Members[0].Checks[0].Allowed)

		other, _ := lookBy(t, client, "http://page/events?limit=none&key=alice")
		var top shownTop
		other.readEvent(eventTop, &top)
		require.Equal(t, "<script>", *top.Asked[0].Key)
		require.False(t, top.Asked[0].Masked)
		require.Nil(t, top.Denied[0].Key)
		masked := "…cdef"
		require.Equal(t, admin.TopKey{Limit: "per user", ID: "03000000000000000000000000000000", Key: &masked, Masked: true}, top.Denied[1])
		require.Equal(t, []admin.TopKey{{Limit: "streams", ID: "04000000000000000000000000000000", Key: &masked, Masked: true, Denials: 2, Held: 3, HeldMost: 4}}, top.Held)
		require.Equal(t, []string{"b"}, top.Missing)
		other.readEvent(eventKey, &w)
		require.Equal(t, `there is no limit "none"`, w.Error)
	})
}

func joined(t *testing.T, p *Page) *viewer {
	t.Helper()
	v, err := p.join()
	require.NoError(t, err)
	return v
}

func TestSourceIsIdleWithoutViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		p := newPage(t, Options{Source: f})
		time.Sleep(time.Minute)
		require.Zero(t, f.snapshotCount())
		one, other := joined(t, p), joined(t, p)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		require.Equal(t, 11, f.snapshotCount(), "once a second for all viewers together")
		p.leave(one)
		p.leave(other)
		time.Sleep(time.Minute)
		require.Equal(t, 11, f.snapshotCount())
		last := joined(t, p)
		synctest.Wait()
		require.Equal(t, 12, f.snapshotCount(), "at once when somebody comes")
		p.leave(last)
	})
}

func TestSlowViewerReceivesOnlyLatestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, Options{Source: &fake{}})
		defer p.leave(joined(t, p))
		synctest.Wait()
		first, seen, _ := p.hub.newEvents([2]uint64{})
		time.Sleep(30*time.Second + time.Millisecond)
		events, _, _ := p.hub.newEvents(seen)
		require.Equal(t, 1, strings.Count(string(events), "event: snapshot"))
		require.NotContains(t, string(events), string(first))
	})
}

func TestExcessViewersAreRefused(t *testing.T) {
	_, url := serve(t, Options{Source: &fake{}, Viewers: 2})
	for range 2 {
		_, response := look(t, url+"/events")
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	_, response := look(t, url+"/events")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.Equal(t, "5", response.Header.Get("Retry-After"))
}

func TestCloseEndsEvents(t *testing.T) {
	p, url := serve(t, Options{Source: &fake{}})
	v, _ := look(t, url+"/events")
	v.readEvent(eventSnapshot, new(shownSnapshot))
	require.NoError(t, p.Close())
	for v.lines.Scan() {
	}
	require.NoError(t, v.lines.Err(), "an orderly end")
	_, response := look(t, url+"/events")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.NoError(t, p.Close(), "twice is once")
}

func TestDisconnectedViewerIsRemoved(t *testing.T) {
	p, url := serve(t, Options{Source: &fake{}})
	v, response := look(t, url+"/events")
	v.readEvent(eventSnapshot, new(shownSnapshot))
	response.Body.Close()
	require.Eventually(t, func() bool { return p.viewerCount() == 0 }, 5*time.Second, time.Millisecond)
}

func TestForeignPagesCannotAct(t *testing.T) {
	const kill = `{"member":"a","action":"kill"}`
	for _, c := range []struct {
		about, method, path, body string
		header                    map[string]string
		status                    int
	}{
		{"the page", "POST", "/act", kill, map[string]string{"Origin": "http://page.test", "Sec-Fetch-Site": "same-origin"}, 204},
		{"a program", "POST", "/act", kill, nil, 204},
		{"another origin", "POST", "/act", kill, map[string]string{"Origin": "http://other.test"}, 403},
		{"another site", "POST", "/act", kill, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a form", "POST", "/act", kill, map[string]string{"Content-Type": "text/plain"}, 415},
		{"by a link", "GET", "/act", "", nil, 405},
		{"a switch of another site", "POST", "/switch", "{}", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a switch by a form", "POST", "/switch", "{}", map[string]string{"Content-Type": "text/plain"}, 404},
		{"a name of a foreign page", "POST", "/act", kill, map[string]string{"Host": "rebound.test"}, 421},
		{"events for another site", "GET", "/events", "", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a key that is too long", "GET", "/events?limit=l&key=" + strings.Repeat("k", 2<<10), "", nil, 400},
		{"no file", "GET", "/../page.go", "", nil, 404},
		{"no folder", "GET", "/files", "", nil, 404},
		{"a file", "GET", "/page.js", "", nil, 200},
		{"its head", "HEAD", "/", "", nil, 200},
		{"posted", "POST", "/", "", nil, 405},
	} {
		t.Run(c.about, func(t *testing.T) {
			f := &fake{}
			_, url := serve(t, Options{Source: f, Hosts: []string{"page.test"}})
			r, err := http.NewRequest(c.method, url+c.path, strings.NewReader(c.body))
			require.NoError(t, err)
			r.Host = "page.test"
			r.Header.Set("Content-Type", "application/json")
			for name, value := range c.header {
				if name == "Host" {
					r.Host = value
				}
				r.Header.Set(name, value)
			}
			response, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			defer response.Body.Close()
			require.Equal(t, c.status, response.StatusCode)
			if c.status == http.StatusNoContent {
				require.Equal(t, []string{"kill a"}, f.acted)
			} else {
				require.Empty(t, f.acted)
			}
		})
	}
}

func TestFailedActionReturnsError(t *testing.T) {
	f := &fake{refuse: errors.New("a is dead already")}
	_, url := serve(t, Options{Source: f})
	status, text := kill(t, url)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "a is dead already\n", text)
}

func TestSourceWithoutActorHasNoButtons(t *testing.T) {
	_, url := serve(t, Options{Source: mute{&fake{}}})
	v, _ := look(t, url+"/events")
	var s shownSnapshot
	v.readEvent(eventSnapshot, &s)
	require.Empty(t, s.Members[0].Actions)
	status, _ := kill(t, url)
	require.Equal(t, http.StatusNotFound, status)
}

func TestPageLoadsOnlyOwnFiles(t *testing.T) {
	_, url := serve(t, Options{Source: &fake{}})
	require.NoError(t, fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		response, err := http.Get(url + "/" + strings.TrimPrefix(name, "files/"))
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, name)
		require.NotEqual(t, "application/octet-stream", response.Header.Get("Content-Type"), name)
		policy := response.Header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'")
		require.NotContains(t, policy, "unsafe")
		text := strings.ReplaceAll(string(body), "http://www.w3.org/2000/svg", "")                // a name, which nobody loads
		text = strings.Replace(text, "/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "", 1) // a comment
		for _, sign := range []string{"http:", "https:", "//cdn", "@import", "style=\"", "onclick", "innerHTML", "<script>"} {
			require.NotContains(t, text, sign, name)
		}
		return nil
	}))
}

// The embedded files of the chart library are equal to those of its release.
func TestChartLibraryIsUnmodified(t *testing.T) {
	for name, want := range map[string]string{
		"uplot.js":          "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f", // dist/uPlot.iife.min.js of 1.6.32
		"uplot.css":         "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04", // dist/uPlot.min.css
		"uplot.license.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd", // LICENSE
	} {
		body, err := files.ReadFile("files/" + name)
		require.NoError(t, err)
		require.Equal(t, want, fmt.Sprintf("%x", sha256.Sum256(body)), name)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	_, err := New(Options{})
	require.ErrorIs(t, err, weir.ErrInvalid)
	require.ErrorContains(t, err, "Source is nil")
	_, err = New(Options{Source: &fake{}, Viewers: -1})
	require.ErrorContains(t, err, "Viewers is -1")
	for _, link := range []string{"javascript:alert(1)", "/runbook", "https:", "://"} {
		_, err = New(Options{Source: &fake{}, Runbook: link})
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("Runbook is %q", link))
	}
}

// gathering is a Gatherer that returns the counters of two members, or the given error.
type gathering struct {
	Source
	err error
}

func (g *gathering) Gather(context.Context) ([]Counters, []string, error) {
	if g.err != nil {
		return nil, nil, g.err
	}
	own := g.Snapshot().Counters[0]
	return []Counters{{Process: own.Process, Decisions: own.Decisions}, {Process: "b-1", Decisions: map[weir.Source]weir.Outcomes{weir.StandIn: own.Decisions[weir.Owner]}}}, []string{"c"}, nil
}

func TestGathererCountsAllMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, Options{Source: &gathering{Source: &fake{}}})
		var now rates
		s := p.snapshot(t.Context(), &now)
		require.True(t, s.Gathered)
		require.Equal(t, []string{"c"}, s.Uncounted)
		time.Sleep(time.Second)
		s = p.snapshot(t.Context(), &now)
		require.Equal(t, []rate{{"authority", "owner", 20, 0}, {"stand-in", "stand_in", 20, 0}}, s.Checks)

		p = newPage(t, Options{Source: &gathering{Source: &fake{}, err: errors.New("closed")}})
		s = p.snapshot(t.Context(), new(rates))
		require.False(t, s.Gathered, "what the node itself counted is shown")
		require.Equal(t, "closed", s.Error)
	})
}

// crowd is a Gatherer of many members, the last of which are missing.
type crowd struct {
	fake
	gathered int
}

func (c *crowd) Snapshot() Snapshot {
	s := c.fake.Snapshot()
	s.Members = nil
	for i := range 1000 {
		m := Member{ID: fmt.Sprintf("node-%03d-0123456789abcdef", i), Name: fmt.Sprintf("node-%03d", i), Addr: fmt.Sprintf("10.0.0.%d:7946", i), State: "serving", Health: Serving, Share: 0.001, Process: fmt.Sprint(i)}
		if i >= 970 {
			m.State, m.Health = "missing", Missing
			s.Outage.Missing = append(s.Outage.Missing, m.Name)
		}
		s.Members = append(s.Members, m)
	}
	return s
}

func (c *crowd) Gather(context.Context) (all []Counters, missing []string, err error) {
	c.gathered++
	for i := range 1000 {
		all = append(all, Counters{Process: fmt.Sprint(i), Decisions: map[weir.Source]weir.Outcomes{weir.Owner: {Allowed: uint64(100 * c.gathered)}}})
	}
	return all, nil, nil
}

// A page of 1,000 members is small, begins with the members that are missing, finds a member by its name,
// and asks the members once in ten seconds.
func TestLargeClusterHasSmallPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &crowd{}
		p := newPage(t, Options{Source: source})
		var now rates
		var s shownSnapshot
		for range 30 {
			s = p.snapshot(t.Context(), &now)
			time.Sleep(time.Second)
		}
		require.Equal(t, 3, source.gathered)
		require.Equal(t, []rate{{"authority", "owner", 10_000, 0}}, s.Checks)
		require.Less(t, len(eventOf(eventSnapshot, s)), 20_000)
		require.Equal(t, roster{All: 1000, Serving: 970, Missing: 30, Rest: s.Roster.Rest}, s.Roster)
		require.InDelta(t, 0.95, s.Roster.Rest, 1e-9)
		require.Equal(t, []string{"node-970", "node-999", "node-000"}, []string{s.Members[0].Name, s.Members[29].Name, s.Members[30].Name})
		require.Equal(t, "11 more", s.Outage.Missing[namesShown])

		find := func(text string) (found foundMembers) {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/members?find="+text, nil))
			require.Equal(t, http.StatusOK, w.Code)
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &found))
			return found
		}
		require.Equal(t, "node-123", find("NODE-123").Members[0].Name)
		require.Equal(t, []int{1000, membersShown}, []int{find("").Found, len(find("node").Members)})
		require.Empty(t, find("nobody").Members)
	})
}

func TestPageHasVersionAndRunbook(t *testing.T) {
	s := newPage(t, Options{Source: &fake{}}).snapshot(t.Context(), new(rates))
	require.Equal(t, defaultRunbook, s.Runbook)
	require.NotEmpty(t, s.Version)
	s = newPage(t, Options{Source: &fake{}, Runbook: "https://wiki.example.com/weir", Version: "v7"}).snapshot(t.Context(), new(rates))
	require.Equal(t, []string{"https://wiki.example.com/weir", "v7"}, []string{s.Runbook, s.Version})
}
