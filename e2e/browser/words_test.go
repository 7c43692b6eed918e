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
)

// TestGerman uses the browser's language.
func TestGerman(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter("Object.defineProperty(navigator, 'languages', { value: ['fr', 'de-AT', 'en'] })", w.signedIn("/"))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.says("#list li:nth-child(1)", "4:00 von 10:00")
	v.says("#list li:nth-child(1)", "vor 1 Minute")
	v.says("#list li:nth-child(2)", "Abgeschlossen")
	v.says("#continue", "Weiterschauen")
	v.until("document.documentElement.lang === 'de-AT' && document.querySelector('#search').placeholder === 'Suchen' && document.title === 'Verlauf · Playhead'")
	v.hasNames("searchbox Im Verlauf suchen", "button Low Tide löschen", "switch Aufzeichnung")
	v.do(chromedp.Navigate(w.at(clip)))
	v.says("#play", "Abspielen")
	v.says("#resumed", "bei 4:00 aufgehört")
	v.click("#play")
	v.says("#safe", "(läuft)")
	screen := emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 740, DeviceScaleFactor: 2, Mobile: true}
	call(v, emulation.SetDeviceMetricsOverride, screen)
	v.do(chromedp.Navigate(w.at("/")))
	v.click("#backup")
	v.until("[...document.querySelectorAll('#backup-dialog .choice button')].every((b) => b.clientHeight > 0 && b.clientHeight < 60)") // no word is broken
}

// TestGermanErrors shows errors in the page's language, even the edge's.
func TestGermanErrors(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(`Object.defineProperty(navigator, 'languages', { value: ['de'] });
		const edge = window.fetch;
		window.fetch = (address, request) => String(address).includes('/v1/continue') ?
			Promise.resolve(new Response('{"detail":"too many requests"}', { status: 429 })) : edge(address, request);`, w.signedIn("/"))
	v.says("#problem", "Womit es weitergeht, konnte nicht gelesen werden: zu viele Anfragen.")
	broken := filepath.Join(t.TempDir(), "broken.ndjson")
	lines := `{"version":9}
nothing
{"version":1,"user":"another","object":{"id":"1","type":1},"event_time":"2026-01-01T00:00:00Z","details":{}}
{"object":{"id":"1","type":1},"kind":"dance"}`
	if err := os.WriteFile(broken, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	v.click("#backup")
	v.chooses("#backup-file", broken)
	v.click("#backup-go")
	v.says("#backup-result", "4 Einträge waren nicht lesbar: Zeile 1 (von unbekannter Version); Zeile 2 (keine Zeile einer Sicherung); Zeile 3 (von einem anderen Nutzer); …")
	w.ask("PUT", "/v1/settings", []byte(`{"recording":false}`), new(any))
	v.do(chromedp.Navigate(w.at(clip)))
	v.click("#play")
	v.says("#safe", "die Aufzeichnung ruht: nichts wurde festgehalten")
}

// TestHostileTitles shows hostile titles and never runs them.
func TestHostileTitles(t *testing.T) {
	titles := []string{
		`<script>document.title="run"</script>`, `"><img src=x onerror='document.title="run"'>`, `</a></li><h1>big</h1>`,
		"\u202egnp.exe", "&lt;b&gt; &amp;", `javascript:document.title="run"`, "${document.title='run'}",
	}
	w := newWorld(t)
	for i, title := range titles {
		w.report(entry{id: fmt.Sprint(i), title: title, position: time.Minute, age: time.Duration(i+1) * time.Minute})
	}
	v := w.open(w.signedIn("/"))
	v.lists(titles...)
	v.until("document.querySelectorAll('main h1').length === 1 && document.querySelectorAll('main img, main script').length === 0")
	v.click("#list li:nth-child(2) .title")
	v.until(fmt.Sprintf("location.pathname === '/player' && document.querySelector('#title').textContent === %q", titles[1]))
	v.until("!document.querySelector('main img') && document.title.endsWith('Playhead')")
}
