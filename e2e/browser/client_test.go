//go:build browser

package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/playhead/playhead/all-in-one/allinone"
)

// TestPackage uses the package client/javascript on another site's page, as documented.
func TestPackage(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "playhead")
	if out, err := exec.CommandContext(t.Context(), "node", "../../client/javascript/assemble.mjs", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	site := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(site.Close)
	w := newWorld(t, func(c *allinone.Config) { c.Origins = []string{site.URL} })
	page := fmt.Sprintf(`<!doctype html><title>A player</title><link rel="icon" href="data:image/svg+xml;base64,">
		<script type="importmap">{"imports":{"playhead":"./lib/playhead.js","playhead/reporter":"./lib/reporter.js"}}</script>
		<audio></audio><p></p>
		<script type="module">
		import { Playhead } from 'playhead';
		import { Reporter } from 'playhead/reporter';
		const client = new Playhead({ url: 'http://%s', token: () => '%s', storage: localStorage, key: 'outbox.demo' });
		const media = document.querySelector('audio');
		new Reporter(client, media, { object: { id: '100', type: 1 }, device: 'Elsewhere', meta: { title: 'Low Tide' } });
		client.addEventListener('answered', ({ detail: { result } }) => { document.querySelector('p').textContent += result.status + ' '; });
		client.connect();
		for (const type of ['play', 'pause']) media.dispatchEvent(new Event(type));
		</script>`, w.cfg.HTTP, w.token)
	if err := os.WriteFile(filepath.Join(folder, "index.html"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	v := w.open("about:blank")
	v.others = strings.TrimPrefix(site.URL, "http://") + "/"
	v.do(chromedp.Navigate(site.URL))
	v.says("p", "stored stored")
	if r := w.point("100"); r == nil || r.State != "paused" || r.Device != "Elsewhere" {
		t.Errorf("got %+v", r)
	}
}

// TestSleep wakes the page: it must reload the list and check the connection.
func TestSleep(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.live()
	const reads = "performance.getEntriesByType('resource').filter((r) => r.name.includes('/v1/history')).length"
	before, err := value[int](v, reads)
	if err != nil {
		t.Fatal(err)
	}
	v.do(chromedp.Evaluate[chromedp.Void](
		"{const now = Date.now; Date.now = () => now() + 1e6; document.dispatchEvent(new Event('visibilitychange'))}"))
	v.until(fmt.Sprintf("%s > %d", reads, before))
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.said) != 1 || !strings.Contains(v.said[0], `"heartbeats":[]`) {
		t.Errorf("it said %q", v.said)
	}
}

// TestTabs closes one of two tabs with a common storage.
func TestTabs(t *testing.T) {
	w := newWorld(t)
	first := w.open(w.at("/"))
	second := first.beside(w, w.at("/"))
	for i, v := range []*window{first, second} {
		v.client(w, fmt.Sprintf("for (let i = 0; i <= %d; i++) client.report(beat('tab%d' + i))", 4*i, i))
	}
	second.until("client.waiting === 5")
	first.do(chromedp.Navigate("about:blank"))
	second.until("client.waiting === 6") // at its next look
	second.until("(client.connect(), client.waiting === 0)")
	if got := w.ids(); len(got) != 6 {
		t.Errorf("the history has %q", got)
	}
}

// TestClosingTab closes a tab: it sends the newest waiting reports, as many as the browser allows, and the next
// page sends the rest.
func TestClosingTab(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.at("/"))
	v.client(w, `await client.connect();
		await new Promise((resolve) => client.addEventListener('open', resolve));
		client.leave();
		for (let i = 0; i < 120; i++) client.report(beat('o' + i, { meta: { title: 'x'.repeat(900) } }))`)
	v.do(chromedp.Navigate(w.at("/docs")))
	w.eventually("the newest is there", func() bool { return w.point("o119") != nil })
	if w.point("o0") != nil {
		t.Error("all of it was sent")
	}
	v.do(chromedp.Navigate(w.at("/")))
	v.client(w, "client.connect()")
	v.until("client.waiting === 0")
	if w.point("o0") == nil {
		t.Error("the oldest is lost")
	}
}

// TestBack returns to a page from the browser's back-forward cache.
func TestBack(t *testing.T) {
	w := newWorld(t)
	v := w.playing()
	w.reaches("100", "playing", 100*time.Second)
	v.until("(window.before = true, addEventListener('pageshow', (e) => (window.kept = e.persisted)), true)")
	v.until(fmt.Sprintf("(location.href = %q, true)", w.at("/docs")))
	w.reaches("100", "stopped", 100*time.Second)
	v.until("location.pathname === '/docs'")
	v.until("(history.back(), true)")
	v.until("window.before && window.kept")
	v.live()
	v.until("document.querySelector('#clip').paused ? (document.querySelector('#play').click(), false) : true")
	w.reaches("100", "playing", 100*time.Second)
}

// client creates a client in the page, named client, and runs a script with it.
func (v *window) client(w *world, act string) {
	v.Helper()
	script := fmt.Sprintf(`(async () => {
		const { Playhead } = await import('/assets/playhead.js');
		const beat = (id, more) => ({ object: { id, type: 1 }, kind: 'stop', position_ms: 5000, duration_ms: 600000,
			event_time: new Date().toISOString(), ...more });
		const client = window.client = new Playhead({ token: () => %q, storage: localStorage, key: 'test', minWaitMs: 10 });
		%s;
		return true;
	})()`, w.token, act)
	if ok, err := value[bool](v, script); err != nil || !ok {
		v.Fatalf("%s: %v", act, err)
	}
}

// TestBelowAPath serves the pages and the client behind a proxy, under a path.
func TestBelowAPath(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	edge, err := url.Parse(w.at("/"))
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(http.StripPrefix("/play", httputil.NewSingleHostReverseProxy(edge)))
	t.Cleanup(site.Close)
	v := w.open("about:blank")
	v.others = strings.TrimPrefix(site.URL, "http://") + "/play/"
	v.do(chromedp.Navigate(site.URL + "/play/#token=" + w.token))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.live()
	v.click("nav a[href=flow]")
	v.until("location.pathname === '/play/flow' && document.querySelectorAll('#records .same').length === 4")
	v.click(".brand")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#list li:nth-child(1) .title")
	v.until("location.pathname === '/play/player' && !document.querySelector('#play').disabled")
	v.click("#play")
	v.until("document.querySelector('#clip').currentTime > 241")
	v.click("#play")
	w.reaches("100", "paused", 4*time.Minute)
}
