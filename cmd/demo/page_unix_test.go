//go:build unix && browser

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/png"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	cdpnetwork "github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/page"
)

// go test -tags browser ./cmd/demo -run Drawn -pictures "$PWD/docs" draws the pictures in
// docs.
var pictures = flag.String("pictures", "", "a `directory` for pictures of the page while a gateway is cut off: page.png, page-dark.png and page-phone.png, and demo.png of the demo's end")

// browser is a Chromium with an open page, its errors and its requests.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	wrong    []string // messages of its console
	requests []string
}

// chromium is a process for all tests. Each test has its own profile and tab.
var chromium struct {
	once sync.Once
	ctx  context.Context // nil before the start
	err  error
}

// openBrowser opens a tab, or skips the test if there is no Chromium.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("there is no chromium in PATH: apt-get install chromium")
	}
	chromium.once.Do(func() { startChromium(t, program) })
	require.NoError(t, chromium.err)
	b := &browser{t: t}
	tab, closed := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.listen))
	t.Cleanup(closed)
	ctx, cancel := context.WithTimeout(tab, 5*time.Minute)
	t.Cleanup(cancel)
	b.ctx = ctx
	_, err := chromedp.Call(tab, cdpnetwork.Enable, cdpnetwork.EnableParams{})
	require.NoError(t, err)
	_, err = chromedp.Call(tab, cdplog.Enable, cdp.Empty{})
	require.NoError(t, err)
	return b
}

// startChromium waits for Chromium without a timeout: chromedp uses a pipe, and receives
// the first answer when Chromium is ready.
func startChromium(t *testing.T, program string) {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program), chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	for tries := 1; ; tries++ {
		allocated, end := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, closed := chromedp.NewContext(allocated)
		if chromium.err = chromedp.Do(ctx); chromium.err == nil {
			chromium.ctx, endChromium = ctx, func() { closed(); end() }
			return
		}
		closed()
		end()
		// Chromium crashes at its start about once in some hundred times.
		if tries == 3 {
			return
		}
		t.Logf("started Chromium again: %v", chromium.err)
	}
}

// listen records errors and requests.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *cdplog.EventEntryAdded:
		b.wrong = append(b.wrong, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.wrong = append(b.wrong, fmt.Sprintf("console.%s", e.Type))
	case *cdpnetwork.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

// evaluated returns the value of an expression of JavaScript.
func evaluated[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return value
}

// text returns the text of an element, or "" if there is no such element.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return evaluated[string](b, fmt.Sprintf("document.querySelector(%q)?.textContent || ''", selector))
}

// shows waits until the text of an element matches a pattern.
func (b *browser) shows(selector, pattern string) {
	b.t.Helper()
	want, last := regexp.MustCompile(pattern), ""
	for by := time.Now().Add(eventually); time.Now().Before(by); time.Sleep(50 * time.Millisecond) {
		if last = b.text(selector); want.MatchString(last) {
			return
		}
	}
	b.t.Fatalf("%s shows %q, not %s", selector, last, pattern)
}

func (b *browser) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// likes sets the preferences of the user: a colour scheme, and reduced motion.
func (b *browser) likes(scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	require.NoError(b.t, err)
}

func buttonOf(gateway int, action string) string {
	return fmt.Sprintf(`tr[data-key="gateway-%d"] button[data-action="%s"]`, gateway, action)
}

func stateOf(gateway int) string { return fmt.Sprintf(`tr[data-key="gateway-%d"] .state`, gateway) }

var pageInText = regexp.MustCompile(`page +(http://\S+)`)

// servedDemo starts a demo that serves, and returns the address of its page.
func servedDemo(t *testing.T) (d *demo, url string) {
	t.Helper()
	d = startDemo(t, "-serve")
	require.True(t, d.readUntil("Ctrl-C"))
	go func() { // so that the demo never waits for a reader
		for d.lines.Scan() {
		}
	}()
	return d, pageInText.FindStringSubmatch(d.output.String())[1]
}

// instead names the tests of the page in the default run. Chromium takes more time than
// all other tests here together.
const instead = "the tests of package page, and TestPageShowsMembersAndActions"

func TestPageShowsAndHealsItsFaults(t *testing.T) {
	testenv.SkipUnlessFull(t, instead)
	t.Parallel()
	b := openBrowser(t)
	d, url := servedDemo(t)
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(url))
	b.shows("#headline", `^All 3 members serve`)
	b.shows("#checks", `the owner, reached directly`)
	b.shows("#latency", `ms|µs`)
	b.shows("#asked", `client-001`)
	b.shows("#watched", `\d+ of 30 per 10 s`)
	b.shows("#by-authority", `[1-9]`)

	// A process dies, and the table shows this in its row. Then another process starts
	// there.
	b.click(buttonOf(2, "kill"))
	b.shows(stateOf(2), `^killed$`)
	b.shows("#headline", `1 of 3 members is missing: gateway-2`)
	b.shows("#ring-count", `2 of 3`)
	b.click(buttonOf(2, "start"))
	b.shows(stateOf(2), `^up$`)
	b.shows("#headline", `^All 3 members serve`)

	// A link is cut: both sides are up, and each is connected to itself only.
	b.click(buttonOf(3, "cut"))
	b.shows("#headline", `^Split into 2 sides: \[gateway-1 and gateway-2\] and \[gateway-3\]`)
	b.shows(stateOf(3), `^cut off$`)
	b.shows(`#by-shares`, `[1-9]`)
	b.click(buttonOf(3, "heal"))
	b.shows(stateOf(3), `^up$`)
	b.shows("#headline", `^All 3 members serve`)

	// gateway-1 is frozen and thawed by the keyboard alone, from the top of the page. The thaw
	// button takes the place of the freeze button, and has the focus.
	evaluated[any](b, `document.activeElement.blur()`)
	focused := `document.activeElement.getAttribute('aria-label') || ''`
	name := ""
	for range 40 {
		b.do(chromedp.KeyEvent(kb.Tab))
		if name = evaluated[string](b, focused); name == "Freeze gateway-1" {
			break
		}
	}
	require.Equal(t, "Freeze gateway-1", name)
	require.True(t, evaluated[bool](b, `getComputedStyle(document.activeElement).outlineStyle === 'solid'`), "the focused element has an outline")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows(stateOf(1), `^frozen$`)
	require.Equal(t, "Thaw gateway-1", evaluated[string](b, focused))
	b.do(chromedp.KeyEvent(" "))
	b.shows(stateOf(1), `^up$`)

	// A slow gateway is not gone.
	b.click(buttonOf(1, "slow"))
	b.shows(`tr[data-key="gateway-1"]`, `slower`)
	b.shows("#latency", `50 ms|100 ms`)
	b.shows(stateOf(1), `^up$`)
	b.click(buttonOf(1, "speed up"))

	// All charts show their values at the time under the pointer.
	require.Equal(t, "now", b.text("#checks-legend .moment"))
	evaluated[any](b, `document.querySelector('#checks-chart').scrollIntoView({block: 'center'})`)
	evaluated[any](b, `(over => over.dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: over.getBoundingClientRect().right - 40, clientY: over.getBoundingClientRect().top + 40})))(document.querySelector('#checks-chart .u-over'))`)
	b.shows("#checks-legend .moment", `^\d\d:\d\d:\d\d$`)
	b.shows("#latency-legend .moment", `^\d\d:\d\d:\d\d$`)
	b.shows("#latency-legend", `99 % within \d`)
	b.shows("#outages", `gateway-2`)
	b.shows("#denials", `client.*[1-9]`)
	b.shows("#watched", `Next free unit`)

	// Another key is chosen from the list.
	b.click(`button[aria-label="Watch client-002 of client"]`)
	b.shows("#key-desc", `^client-002 has used \d+ of 30 of client`)

	b.mu.Lock()
	require.Empty(t, b.wrong, "its console is silent")
	for _, asked := range b.requests {
		require.True(t, strings.HasPrefix(asked, url), asked)
	}
	b.mu.Unlock()

	// The page does not show old figures as new figures.
	require.NoError(t, d.cmd.Process.Kill())
	b.shows("#headline", `^No figures since`)
}

func TestPageShowsHeldUnitsByKey(t *testing.T) {
	testenv.SkipUnlessFull(t, "TestNodeShowsMembersAndSources of package page")
	t.Parallel()
	b := openBrowser(t)
	node, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	defer node.Close()
	source := &page.Node{Node: node}
	hold := func(limit weir.Limit, key string, units int64) *weir.Hold {
		l, err := node.Limiter(limit)
		require.NoError(t, err)
		h, err := l.Hold(t.Context(), key, units)
		require.NoError(t, err)
		source.Limiters = append(source.Limiters, l)
		return h
	}
	streams := weir.Limit{Name: "streams", Algorithm: weir.InFlight, Rate: 4}
	held := hold(streams, "alice", 4)
	require.False(t, hold(streams, "alice", 1).Decision().Allowed)
	hold(weir.Limit{Name: "keyed", Algorithm: weir.InFlight, Rate: 9, SecretKeys: true}, "sk_live_0123456789abcdef", 2)
	p, err := page.New(page.Options{Source: source})
	require.NoError(t, err)
	defer p.Close()
	server := httptest.NewServer(p)
	defer server.Close()
	defer p.Close() // the server waits for the page

	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(server.URL))
	b.shows("#held tbody tr:nth-child(1)", `^alicestreams4 of 41$`)
	b.shows("#held tbody tr:nth-child(2)", `^…cdefid [0-9a-f]{12}…keyed2 of 90$`)
	b.click(`#held button[aria-label="Watch alice of streams"]`)
	b.shows("#watched", `Held now4 of 4Next free unitafter the release of a hold`)
	held.Release()
	b.shows("#watched", `Held now0 of 4Next free unitnow: 4 are left`)
	b.shows("#held tbody tr:nth-child(1)", `^…cdef`)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.wrong, "its console is silent")
}

func TestPageSuitsPhonesAndScreenReaders(t *testing.T) {
	testenv.SkipUnlessFull(t, instead)
	t.Parallel()
	b := openBrowser(t)
	_, url := servedDemo(t)
	b.likes("dark")
	b.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), chromedp.Navigate(url))
	b.shows("#headline", `^All 3 members serve`)
	b.shows("#asked", `client-001`)
	b.shows("#denials", `client`) // which may arrive a second after the top keys
	require.True(t, evaluated[bool](b, `document.documentElement.scrollWidth <= 390`), "no element is outside the screen")
	require.True(t, evaluated[bool](b, `matchMedia('(prefers-color-scheme: dark)').matches && contrast(document.body) > 7`+contrastOf))
	const low = `[...document.querySelectorAll('h1, h2, p, th, td, dt, dd, button, input, label, caption, li, .small, .state, .source')].filter(e => e.offsetParent && e.textContent.trim() && contrast(e) < 4.5).map(e => e.outerHTML.slice(0, 80)).join('\n')`
	for _, scheme := range []string{"dark", "light"} {
		b.likes(scheme)
		faint := evaluated[string](b, low+contrastOf)
		require.Empty(t, faint, "too faint to read in %s mode", scheme)
	}
	require.True(t, evaluated[bool](b, `[...document.querySelectorAll('.actions button')].every(b => b.getBoundingClientRect().height >= 44)`), "buttons are large enough for a thumb")

	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	require.NoError(t, err)
	named := make(map[string][]string) // by role
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role, name := strings.Trim(string(node.Role.Value), `"`), ""
		if node.Name != nil {
			name = strings.Trim(string(node.Name.Value), `"`)
		}
		if slices.Contains([]string{"button", "textbox", "combobox", "image", "table", "link", "heading", "region"}, role) {
			require.NotEmpty(t, name, "a %s without a name", role)
		}
		named[role] = append(named[role], name)
	}
	for _, name := range []string{"Kill gateway-1", "Freeze gateway-2", "Slow gateway-3", "Cut gateway-3", "Watch"} {
		require.Contains(t, named["button"], name)
	}
	require.Contains(t, named["textbox"], "Key")
	require.Contains(t, named["combobox"], "Limit")
	require.Contains(t, named["image"], "The ring")
	for _, name := range []string{"Members, ", "Checks in ", "Latency of ", "Current state ", "The limits with ", "Most checks", "Most denials", "The rules in force "} {
		require.True(t, slices.ContainsFunc(named["table"], func(table string) bool { return strings.HasPrefix(table, name) }), "the chart %q has no table: %q", name, named["table"])
	}
	for _, name := range []string{"Checks per second ", "Latency of checks ", "The key's use "} {
		require.True(t, slices.ContainsFunc(named["image"], func(image string) bool { return strings.HasPrefix(image, name) }), "no image %q: %q", name, named["image"])
	}
	require.Contains(t, named["rowheader"], "gateway-1 127.0.0.1:"+portOf(b, 1))
	require.NotEmpty(t, named["status"])
}

// contrastOf is the JavaScript of a function, for use in an expression. The function returns
// the contrast between the text of an element and its background, as in WCAG 2.
const contrastOf = `
function contrast(e) {
  const rgb = text => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  let back = e;
  while (back && (rgb(getComputedStyle(back).backgroundColor)[3] === 0)) back = back.parentElement;
  const two = [light(rgb(getComputedStyle(e).color)), light(rgb(getComputedStyle(back || document.body).backgroundColor))].sort((a, b) => b - a);
  return (two[0] + .05) / (two[1] + .05);
}`

func portOf(b *browser, gateway int) string {
	text := b.text(fmt.Sprintf(`tr[data-key="gateway-%d"] th .small`, gateway))
	_, port, _ := strings.Cut(text, ":")
	return port
}

func TestPageIsDrawn(t *testing.T) {
	if *pictures == "" {
		t.Skip("without -pictures there is nowhere to draw it")
	}
	b := openBrowser(t)
	_, url := servedDemo(t)
	b.likes("light")
	b.do(chromedp.EmulateViewport(1440, 900), chromedp.Navigate(url))
	b.shows("#headline", `^All 3 members serve`)
	b.do(chromedp.Sleep(45 * time.Second))
	b.click(buttonOf(2, "kill"))
	b.do(chromedp.Sleep(12 * time.Second))
	b.click(buttonOf(2, "start"))
	b.shows(stateOf(2), `^up$`)
	b.do(chromedp.Sleep(10 * time.Second))
	b.shows("#outages", `gateway-2`)
	b.click(buttonOf(3, "cut"))
	b.do(chromedp.Sleep(20 * time.Second))
	evaluated[any](b, `document.activeElement.blur()`)
	for _, picture := range []struct {
		name, scheme string
		wide         int64
		more         []chromedp.EmulateViewportOption
	}{
		{"page", "light", 1440, nil}, {"page-dark", "dark", 1440, nil}, {"page-phone", "light", 390, []chromedp.EmulateViewportOption{chromedp.EmulateMobile}},
	} {
		b.likes(picture.scheme)
		b.do(chromedp.EmulateViewport(picture.wide, 844, picture.more...), chromedp.Sleep(2*time.Second))
		high := min(evaluated[float64](b, `document.documentElement.scrollHeight`), 4.5*float64(picture.wide)) // on a phone, the first screens
		b.do(chromedp.EmulateViewport(picture.wide, int64(high), picture.more...), chromedp.Sleep(2*time.Second))
		b.draw(picture.name)
	}
}

// draw writes a picture of the browser's page.
func (b *browser) draw(name string) {
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	small := withPalette(b.t, shot)
	require.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+".png"), small, 0o644))
	require.Less(b.t, len(small), 150<<10, name)
}

// The picture contains the last output of the demo: the verdict and its table.
func TestEndOfDemoIsDrawn(t *testing.T) {
	if *pictures == "" {
		t.Skip("without -pictures there is nowhere to draw it")
	}
	b := openBrowser(t)
	d := startDemo(t)
	require.Zero(t, d.wait(t))
	_, end, ok := strings.Cut(d.output.String(), "Every promise held.")
	require.True(t, ok)
	page := `<body style="margin: 0; background: #fff"><pre id="end" style="font: 13px/1.4 monospace; margin: 16px; width: max-content">Every promise held.` +
		html.EscapeString(strings.TrimRight(end, "\n")) + `</pre>`
	b.do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate("data:text/html;charset=utf-8;base64,"+base64.StdEncoding.EncodeToString([]byte(page))))
	wide := evaluated[float64](b, `document.getElementById("end").getBoundingClientRect().width`)
	high := evaluated[float64](b, `document.getElementById("end").getBoundingClientRect().height`)
	b.do(chromedp.EmulateViewport(int64(wide)+32, int64(high)+32))
	b.draw("demo")
}

// withPalette returns a PNG that has only the 64 most frequent colours of shot, and a third of
// its bytes.
func withPalette(t *testing.T, shot []byte) []byte {
	from, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	bounds := from.Bounds()
	pixels := make(map[color.RGBA]int)
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			pixels[at(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(pixels), func(a, b color.RGBA) int { return pixels[b] - pixels[a] })
	var palette color.Palette
	for _, c := range colors[:min(len(colors), 64)] {
		palette = append(palette, c)
	}
	nearest := make(map[color.RGBA]uint8)
	for c := range pixels {
		nearest[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(bounds, palette)
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			to.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	var b bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, to))
	return b.Bytes()
}
