//go:build browser

package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/playhead/playhead/all-in-one/allinone"
)

// TestAccessibility checks every page with axe-core: light on a desktop, dark on a phone.
func TestAccessibility(t *testing.T) {
	axe, err := os.ReadFile("../../.tools/npm/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v; make browser installs it", err)
	}
	w := newWorld(t)
	w.report(library...)
	w.report(
		entry{id: "h1", title: "Fog", typ: 2, position: length, age: 3 * time.Hour, episode: 1},
		entry{id: "h2", title: "The Pilot Boat", typ: 2, position: time.Minute, age: 2 * time.Hour, episode: 2},
	)
	visit := func(w *world, address, ready string) *window {
		v := w.open(address)
		v.until(ready)
		if err := chromedp.Do(v.ctx, chromedp.Evaluate[chromedp.Void](string(axe)+";0")); err != nil {
			t.Fatal(err)
		}
		return v
	}
	open := func(path, ready string) *window { return visit(w, w.signedIn(path), ready) }
	operators := &world{T: t, cfg: allinone.Config{HTTP: w.admin}}
	w.watch("film", "The Film", 1, 2, 9, 200)
	history := "document.querySelectorAll('#list .title').length > 3 && document.querySelectorAll('#cards li').length > 3 && document.querySelector('#recording').checkVisibility()"
	player := "!document.querySelector('#play').disabled"
	pages := map[string]*window{
		"history":  open("/", history),
		"mark":     open("/", history),
		"select":   open("/", history),
		"series":   open("/", history),
		"clear":    open("/", history),
		"backup":   open("/", history),
		"undo":     open("/", history),
		"stats":    open("/stats", "document.querySelectorAll('#most li').length > 3"),
		"player":   open("/player?id=h2&type=2&title=The%20Pilot%20Boat", player),
		"flow":     open("/flow", "document.querySelectorAll('#records li').length > 2"),
		"status":   visit(operators, operators.at("/"), "document.querySelectorAll('tbody tr').length > 8"),
		"runbooks": visit(operators, operators.at("/runbooks"), "document.querySelectorAll('h2').length > 15"),
		"sign-in":  visit(w, w.at("/"), "document.querySelector('#sign-in').checkVisibility()"),
		"guide":    visit(w, w.at("/docs/tokens"), "document.querySelectorAll('pre').length > 2"),
		"docs":     open("/docs", "document.querySelectorAll('#menu a').length > 10 && document.querySelector('.opblock')"),
	}
	pages["select"].click("#select")
	pages["select"].click(".series .pick")
	pages["series"].click(".series .title")
	pages["mark"].click("#list li:nth-child(1) .mark")
	pages["clear"].click("#clear")
	pages["backup"].click("#backup")
	pages["stats"].click("summary")
	pages["undo"].click("#list li:nth-child(1) .delete")
	pages["undo"].do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#undo').focus()")) // the focus keeps the message open
	pages["history"].do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#list .title').focus()"))
	for name, v := range pages {
		for scheme, width := range map[string]int64{"light": 1280, "dark": 360} {
			v.looks(scheme, width)
			v.isAccessible(fmt.Sprintf("%s-%s-%d", name, scheme, width))
		}
	}
}

// looks shows the page in a color scheme and a width.
func (v *window) looks(scheme string, width int64) {
	v.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	call(v, emulation.SetEmulatedMedia, media)
	screen := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1, Mobile: width < 600}
	call(v, emulation.SetDeviceMetricsOverride, screen)
	v.until(fmt.Sprintf("innerWidth === %d && matchMedia('(prefers-color-scheme: %s)').matches", width, scheme))
}

// isAccessible fails on violations outside the viewer from npm, and on content wider than the screen. It saves a
// screenshot to the folder SCREENSHOTS, if set.
func (v *window) isAccessible(name string) {
	v.Helper()
	found, err := value[[]string](v, `axe.run({exclude: ['.swagger-ui']}, {resultTypes: ['violations']}).then(({violations}) =>
		violations.flatMap(({id, impact, nodes}) => nodes.map(({target, failureSummary}) => [impact, id, target.join(' '), failureSummary].join(' | '))))`)
	if err != nil {
		v.Fatalf("%s: %v", name, err)
	}
	for _, one := range found {
		v.Errorf("%s: %s", name, one)
	}
	v.until("document.documentElement.scrollWidth <= innerWidth")
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		picture, err := chromedp.Run(v.ctx, chromedp.CaptureScreenshot())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600)
		}
		if err != nil {
			v.Error(err)
		}
	}
}
