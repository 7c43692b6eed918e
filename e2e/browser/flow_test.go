//go:build browser

package browser_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/playhead/playhead/e2e/process"
)

// demo starts the demo as a visitor does, and returns the address of /flow that it prints last.
func demo(t *testing.T) (w *world, flow string) {
	t.Helper()
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/playhead/playhead/all-in-one/demo").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p, err := process.Start(path, "--trace", "../../testdata/kuairand/watch_events.csv.gz", "--limit", "2000", "--data", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(patience); err != nil {
			t.Errorf("%v: %s", err, p.Log())
		}
	})
	w = &world{T: t}
	w.eventually("the demo invites to look on", func() bool { return strings.Contains(p.Log(), "What to try next") })
	found := regexp.MustCompile(`http://(\S+)/flow#token=(\S+)`).FindStringSubmatch(p.Log())
	if found == nil {
		t.Fatalf("no link in %s", p.Log())
	}
	w.cfg.HTTP, w.token = found[1], found[2]
	return w, found[0]
}

// enter presses a button by the keyboard. A click would wait forever for an animated picture.
func (v *window) enter(selector string) {
	v.Helper()
	v.until(fmt.Sprintf("document.querySelector(%q)?.checkVisibility() && (document.querySelector(%[1]q).focus(), document.activeElement.matches(%[1]q))", selector))
	v.press(kb.Enter)
}

// number returns the script that reads an element's number.
func number(selector string) string {
	return fmt.Sprintf("Number(document.querySelector(%q).textContent)", selector)
}

// sayings records the page's messages, visible and for screen readers.
const sayings = `globalThis.sayings = [];
	new MutationObserver(() => {
		for (const id of ['news', 'said']) {
			const text = document.getElementById(id)?.textContent;
			if (text && !sayings.includes(text)) sayings.push(text);
		}
	}).observe(document, { subtree: true, childList: true, characterData: true });`

// TestFlow uses the demo as a visitor does. It stops the job during a viewing, sees the backlog grow, starts the
// job, and sees everything archived, the viewer's own record too.
func TestFlow(t *testing.T) {
	w, flow := demo(t)
	v := w.open(flow)
	v.live()
	v.until(number("#players") + " > 1 && " + number("#edge-rate") + " > 1 && " + number("#service-rate") + " > 1 && " + number("#held") + " > 1")
	v.until("document.querySelectorAll('#holds i').length > 1 && document.querySelector('.dot')")
	v.enter("#play")
	v.until("document.querySelector('#records [data-id=walk_1]')")
	v.until("document.querySelector('.dot.own') && document.querySelector('.box.lit')")
	v.says("#safe", "safe after")

	v.enter("#job .fault")
	v.says("#news", "The job is stopped. Nothing is lost")
	v.hasNames("button Start the job", "button Stop the queue", "button Stop the archive", "heading Cache", "list Safe within milliseconds", "region The way of a heartbeat")
	v.enter("#play") // ends the viewing
	late := "Number(document.querySelector('#news').dataset.late)"
	v.until(late + " > 1")
	before, err := value[int](v, late)
	if err != nil {
		t.Fatal(err)
	}
	v.until(fmt.Sprintf("%s > %d && document.querySelector('#cache').classList.contains('piling')", late, before))
	v.until(fmt.Sprintf("Number(/(\\d+) records? wait/.exec(document.querySelector('#said').textContent)?.[1]) > %d", before)) // for screen readers too

	other := v.beside(w, w.at("/docs"))
	other.beforePages(sayings)
	other.do(chromedp.Navigate(flow))
	other.until("document.querySelector('#said').textContent.match(/[1-9]\\d* records? wait/)")
	other.until("sayings.length > 1 && sayings.every((text) => !/\\b0 records? wait|All is well/.test(text))")
	other.enter("#queue .fault")
	other.says("#news", "The job and the queue are stopped.")
	other.enter("#archive .fault")
	other.says("#news", "The archive, the job and the queue are stopped.")
	other.enter("#archive .fault")
	other.enter("#queue .fault")
	other.says("#news", "The job is stopped.")

	v.enter("#job .fault")
	v.says("#news", "Everything that waited is in the archive")
	v.until(late + " === 0 && !document.querySelector('#cache').classList.contains('piling')")
	const own = "document.querySelector('#records [data-id=walk_1]')"
	v.until(own + "?.dataset.marked === 'false' && " + own + ".querySelector('.same')?.textContent.includes('stopped at')")
	if r := w.point("walk"); r == nil || r.State != "stopped" || r.PositionMS == 0 {
		t.Errorf("the record is %+v", r)
	}
}

// TestFlowLooks checks the page in light and dark, on a small phone, and with reduced motion. In the all-in-one
// it offers nothing to stop.
func TestFlowLooks(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.click("nav a[href=flow]")
	v.live()
	v.until("document.querySelectorAll('#records .same').length === 4")
	screen := emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 740, DeviceScaleFactor: 2, Mobile: true}
	call(v, emulation.SetDeviceMetricsOverride, screen)
	v.until("innerWidth === 360 && document.documentElement.scrollWidth <= 360")
	for _, scheme := range []string{"light", "dark"} {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}}
		call(v, emulation.SetEmulatedMedia, media)
		v.until(fmt.Sprintf("matchMedia('(prefers-color-scheme: %s)').matches && matchMedia('(prefers-reduced-motion)').matches", scheme))
		for _, selector := range []string{"h1", ".lead", "#news", "#archived-name", ".box h3", ".box b", ".what", "#records dt", "#records dd", "#records .same"} {
			if ratio, err := value[float64](v, fmt.Sprintf(contrast, selector)); err != nil || ratio < 4.5 {
				t.Errorf("%s: %s has a contrast of %.1f, %v", scheme, selector, ratio, err)
			}
		}
	}
	w.report(entry{id: "new", title: "New Moon", position: length / 2})
	v.until("[...document.querySelectorAll('#records h3')].some((h) => h.textContent === 'New Moon')")
	v.until("document.querySelector('.box.lit') || document.querySelector('#records [data-id=new_1]')?.dataset.marked === 'false'")
	if moves, err := value[int](v, "document.getAnimations().length + document.querySelectorAll('.dot, .fault:not([hidden])').length"); err != nil || moves != 0 {
		t.Errorf("%d things move or may be broken, %v", moves, err)
	}
	w.stop()
	v.expects("net::ERR")
	v.says("#connection", "Reconnecting")
	w.start()
	v.live()
}

// TestFlowRestart keeps the page's counts over a restart of the server, whose counters restart at zero.
func TestFlowRestart(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/flow"))
	v.live()
	v.says("#saved", "Since you look: 0 heartbeats")
	w.report(entry{id: "r1", position: length / 2}, entry{id: "r2", position: length / 2}, entry{id: "r3", position: length / 2})
	v.says("#saved", "Since you look: 3 heartbeats")
	v.expects("net::ERR")
	w.stop()
	v.says("#connection", "Reconnecting")
	v.says("#news", "The server does not answer.")
	w.start()
	w.report(entry{id: "r4", position: length / 2}, entry{id: "r5", position: length / 2})
	v.live()
	v.says("#saved", "Since you look: 5 heartbeats")
	v.until("!/\\b0\\.\\d go on/.test(document.querySelector('#batch').textContent)")
}

// streams records the page's stream requests, from before its scripts run, and which of them are open.
const streams = `globalThis.asked = []; {
	const real = fetch;
	window.fetch = (address, of) => {
		if (String(address).includes('/flow/stream')) asked.push(of.signal);
		return real(address, of);
	};
}`

const openStreams = "asked.filter((signal) => !signal.aborted).length"

// hide sets whether the page believes it is hidden.
func (v *window) hide(hidden bool) {
	v.Helper()
	v.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		"Object.defineProperty(document, 'hidden', { value: %v, configurable: true }), document.dispatchEvent(new Event('visibilitychange'))", hidden)))
}

// TestFlowHidden opens no stream in a hidden window, even one hidden from the start, and exactly one in a visible
// window.
func TestFlowHidden(t *testing.T) {
	w := newWorld(t)
	v := w.openAfter(streams+"Object.defineProperty(document, 'hidden', { value: true, configurable: true });", w.signedIn("/flow"))
	v.until("document.querySelector('#wires path') && document.querySelector('#play').onclick")
	v.until("asked.length === 0 && document.querySelector('#connection').dataset.state === 'closed'")
	v.hide(false)
	v.live()
	v.until(openStreams + " === 1")
	v.hide(false) // browsers send this event when a page is first shown
	v.live()
	v.until(openStreams + " === 1")
	v.hide(true)
	v.says("#connection", "Reconnecting")
	v.until(openStreams + " === 0")
	v.hide(false)
	v.live()
	v.until(openStreams + " === 1")
}
