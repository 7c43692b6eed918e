//go:build browser

package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/playhead/playhead/bff/token"
)

const clip = "/player?id=100&type=1&title=Low%20Tide"

// TestPlayer starts at the resume point, and reports play, pause, seek and stop.
func TestPlayer(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "100", title: "Low Tide", position: 4 * time.Minute, age: time.Hour})
	v := w.open(w.signedIn(clip))
	v.says("#resumed", "You stopped at 4:00, 1 hour ago")
	v.says("#title", "Low Tide")
	v.live()
	v.click("#play")
	v.until("document.querySelector('#clip').currentTime > 241")
	w.reaches("100", "playing", 4*time.Minute)
	v.click("#play")
	w.reaches("100", "paused", 4*time.Minute) // the first seconds of a viewing keep the resume point
	v.says("#safe", "(paused)")
	v.seek(500)
	w.reaches("100", "paused", 500*time.Second)
	v.click("#play")
	v.until("document.querySelector('#clip').currentTime > 501")
	v.do(chromedp.Navigate(w.at("/docs"))) // leaving stops
	w.reaches("100", "stopped", 500*time.Second)
}

// TestFinish plays to the end.
func TestFinish(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.signedIn(clip))
	v.click("#play")
	v.seek(598)
	v.until("document.querySelector('#clip').ended")
	w.reaches("100", "finished", length)
	v.do(chromedp.Navigate(w.at("/")))
	v.says("#list li", "Low Tide")
	v.says("#list li", "Completed")
}

// TestPlayAgain replays a moment after the end: the record stays completed.
func TestPlayAgain(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.signedIn(clip))
	v.click("#play")
	v.seek(598)
	v.until("document.querySelector('#clip').ended")
	w.reaches("100", "finished", length)
	v.click("#play")
	v.until("((at) => at > 1 && at < 500)(document.querySelector('#clip').currentTime)")
	v.click("#play")
	v.says("#safe", "(paused)")
	if r := w.point("100"); !r.Completed || r.State != "paused" || r.Plays != 1 {
		t.Errorf("it is %+v", r)
	}
}

// TestKeepsMetadata plays a part of a series, which keeps its series and its title.
func TestKeepsMetadata(t *testing.T) {
	w := newWorld(t)
	w.report(
		entry{id: "h1", title: "Fog", position: length, age: 2 * time.Hour, episode: 1},
		entry{id: "h2", title: "The Pilot Boat", position: time.Minute, age: time.Hour, episode: 2},
	)
	v := w.open(w.signedIn("/player?id=h2"))
	v.says("#title", "The Pilot Boat")
	v.click("#play")
	v.seek(598)
	v.until("document.querySelector('#clip').ended")
	w.reaches("h2", "finished", length)
	v.do(chromedp.Navigate(w.at("/")))
	v.says("#list li:nth-child(1)", "2 of 2 completed")
	v.says("#cards", "After The Pilot Boat")
}

// TestReload continues at the position of the reload.
func TestReload(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.signedIn(clip))
	v.click("#play")
	v.seek(200)
	v.until("document.querySelector('#clip').currentTime > 202")
	v.do(chromedp.Reload())
	v.says("#resumed", "You stopped at 3:2")
	v.until("document.querySelector('#clip').currentTime >= 200")
	device := v.text("#device")
	v.click("#play")
	w.reaches("100", "playing", 200*time.Second)
	if r := w.point("100"); r.Device != device {
		t.Errorf("recorded of %q, the page is %q", r.Device, device)
	}
}

// TestStartOver starts elsewhere than at the resume point, which counts at once despite the grace period.
func TestStartOver(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "100", title: "Low Tide", position: 4 * time.Minute, age: time.Hour})
	v := w.open(w.signedIn(clip))
	v.says("#resumed", "You stopped at 4:00")
	v.click("#over")
	v.until("document.querySelector('#clip').currentTime === 0")
	v.click("#play")
	v.until("document.querySelector('#clip').currentTime > 1.5")
	v.do(chromedp.Reload())
	v.until("!document.querySelector('#play').disabled && document.querySelector('#clip').currentTime < 60")
}

// TestUnreadablePoint never takes an error for an unplayed object.
func TestUnreadablePoint(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "100", position: 4 * time.Minute, age: time.Hour})
	v := w.open(w.signedIn("/"))
	v.live()
	v.expects("ERR_FAILED")
	v.expects("ERR_CONNECTION_REFUSED")
	v.do(chromedp.Evaluate[chromedp.Void]("history.replaceState(null, '', '/')"))
	v.blocked("/v1/history/lookup")
	v.do(chromedp.Navigate(w.at(clip)))
	v.says("#problem", "Where you stopped could not be read")
	v.until("document.querySelector('#play').disabled")
	v.blocked()
	v.click("#again")
	v.says("#resumed", "You stopped at 4:00")
	v.until("document.querySelector('#clip').currentTime === 240")
}

func (v *window) seek(seconds int) {
	v.Helper()
	v.until("!document.querySelector('#position').disabled")
	v.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		"{const s = document.querySelector('#position'); s.value = %d; s.dispatchEvent(new Event('change'))}", seconds)))
}

// TestDrag drags the slider slowly with the mouse while the clip plays.
func TestDrag(t *testing.T) {
	w := newWorld(t)
	v := w.playing()
	slider := v.slider()
	mouse := func(typ input.DispatchMouseEventType, part float64) {
		v.do(chromedp.MouseEvent(typ, slider.Left+part*slider.Width, slider.Top, chromedp.ButtonLeft, chromedp.ClickCount(1), func(p *input.DispatchMouseEventParams) { p.Buttons = 1 }))
	}
	v.do(chromedp.Evaluate[chromedp.Void]("globalThis.updates = 0, document.querySelector('#clip').addEventListener('timeupdate', () => updates++), 0"))
	waits := func() { v.until("(globalThis.enough ??= updates + 3) <= updates && (globalThis.enough = null, true)") }
	shown := func(seconds int) {
		const at = "document.querySelector('#at').textContent.split(':').reduce((m, s) => m * 60 + Number(s), 0)"
		v.until(fmt.Sprintf("[Number(document.querySelector('#position').value), %s].every((at) => Math.abs(at - %d) < 20)", at, seconds))
	}

	mouse(chromedp.MousePressed, 0.3)
	waits()
	shown(180)
	mouse(chromedp.MouseMoved, 0.75)
	waits()
	shown(450)
	mouse(chromedp.MouseReleased, 0.75)
	v.until("document.querySelector('#clip').currentTime > 430")
	shown(450)
	mouse(chromedp.MousePressed, 0.5)
	waits()
	mouse(chromedp.MouseReleased, 0.5)
	v.until("((at) => at > 280 && at < 320)(document.querySelector('#clip').currentTime)")
	shown(300)
	w.reaches("100", "playing", 280*time.Second)
}

// TestScrollOverTheSlider scrolls with a finger on the slider, which must not move it; a finger along the slider
// must.
func TestScrollOverTheSlider(t *testing.T) {
	w := newWorld(t)
	v := w.playing()
	v.until("document.querySelector('#clip').currentTime > 101")
	v.click("#play")
	w.reaches("100", "paused", 100*time.Second)
	call(v, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true})
	call(v, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 400, DeviceScaleFactor: 1, Mobile: true})
	v.do(chromedp.Evaluate[chromedp.Void]("globalThis.heard = [], ['pointerdown', 'pointercancel', 'change'].forEach((type) => addEventListener(type, () => heard.push(type))), scrollTo(0, 0)"))
	touch := func(typ input.DispatchTouchEventType, points ...*input.TouchPoint) {
		t.Helper()
		call(v, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: typ, TouchPoints: points})
	}
	swipe := func(right, up float64) {
		t.Helper()
		slider := v.slider()
		typ := input.DispatchTouchEventTypeTouchStart
		for n := range 13 {
			part := float64(n) / 12
			touch(typ, &input.TouchPoint{X: slider.Left + (0.5+part*right)*slider.Width, Y: slider.Top - part*up})
			typ = input.DispatchTouchEventTypeTouchMove
		}
		touch(input.DispatchTouchEventTypeTouchEnd)
	}
	swipe(0, 150)
	v.until("heard.includes('pointercancel') && scrollY > 50")
	v.until("((at) => at > 100 && at < 110)(Number(document.querySelector('#position').value))")
	swipe(0.25, 0)
	v.until("document.querySelector('#clip').currentTime > 430")
	v.until("heard.join(' ').startsWith('pointerdown pointercancel')")
	w.reaches("100", "paused", 430*time.Second)
	if n, err := value[int](v, "Math.round(document.querySelector('#clip').currentTime)"); err != nil || n < 430 || n > 470 {
		t.Errorf("at %d s, %v; want about 450", n, err)
	}
}

// box is an element's left edge, vertical middle and width.
type box struct{ Left, Top, Width float64 }

func (v *window) slider() box {
	v.Helper()
	b, err := value[box](v, "(({ left, top, width, height }) => ({ left, top: top + height / 2, width }))(document.querySelector('#position').getBoundingClientRect())")
	if err != nil {
		v.Fatal(err)
	}
	return b
}

// playing opens the clip and plays it from second 100.
func (w *world) playing() *window {
	w.Helper()
	v := w.open(w.signedIn(clip))
	v.live()
	v.click("#play")
	v.until("document.querySelector('#clip').currentTime > 0") // the report at 1:40 must be the jump, not the start
	v.seek(100)
	return v
}

// paused is playing followed by a pause.
func (w *world) paused() *window {
	w.Helper()
	v := w.playing()
	v.click("#play")
	w.reaches("100", "paused", 100*time.Second)
	v.says("#safe", "(paused)") // the page updates it twice a second
	return v
}

// reaches waits until an object's record is in a state, at or after a position.
func (w *world) reaches(id, state string, position time.Duration) {
	w.Helper()
	var r *record
	defer func() {
		if w.Failed() {
			w.Logf("it is %+v", r)
		}
	}()
	w.eventually(fmt.Sprintf("%s is %s at %v", id, state, position), func() bool {
		r = w.point(id)
		return r != nil && r.State == state && r.PositionMS >= position.Milliseconds()
	})
}

// TestRestart stops the edge during a viewing. Unsent reports wait, and arrive when the edge is back on the same
// port.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	v := w.playing()
	w.reaches("100", "playing", 100*time.Second)
	v.stores(110)
	v.expects("ERR_CONNECTION_REFUSED")
	v.expects("WebSocket connection to")
	w.stop()
	v.says("#connection", "Reconnecting")
	v.seek(110)
	v.click("#play")
	v.until("Number(document.querySelector('#waiting').textContent) >= 2")
	w.start()
	v.live()
	w.reaches("100", "paused", 110*time.Second)
	v.until("document.querySelector('#waiting').textContent === '0'")
	v.says("#safe", "(paused)")
}

// TestReportsSurviveReload reloads the page during an outage, which covers only reports: otherwise there would be
// no page.
func TestReportsSurviveReload(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.signedIn(clip))
	v.live()
	v.expects("WebSocket connection to")
	v.expects("ERR_CONNECTION_REFUSED")
	v.click("#play")
	v.until("document.querySelector('#clip').currentTime > 0.5")
	v.stores(20)
	w.stop()
	v.says("#connection", "Reconnecting")
	v.seek(20)
	v.click("#play")
	v.until("Number(document.querySelector('#waiting').textContent) >= 2")
	w.start()
	v.until(fmt.Sprintf("fetch(%q).then((r) => r.ok, () => false)", w.at("/docs")))
	v.until("(location.reload(), true)")
	v.says("#resumed", "You stopped at 0:2")
	w.reaches("100", "stopped", 20*time.Second)
}

// stores waits until the browser has buffered the clip up to a time and can seek there without the edge.
func (v *window) stores(seconds int) {
	v.Helper()
	v.until(fmt.Sprintf("((b) => b.length > 0 && b.end(b.length - 1) > %d)(document.querySelector('#clip').buffered)", seconds+1))
}

// TestNoToken asks for a token, and shows nothing until it is valid.
func TestNoToken(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.at("/"))
	v.expects("401")
	v.expects("HTTP Authentication failed")
	v.says("#sign-in", "Whose history?")
	v.until("!document.querySelector('main').checkVisibility() && document.activeElement.id === 'token'")
	v.press("not a token")
	v.press(kb.Enter)
	v.until("document.querySelector('#token').matches(':invalid') && document.querySelector('#sign-in').checkVisibility()")
	v.paste("eyJhbGciOiJub25lIn0.eyJzdWIiOiJkZW1vIn0.eA")
	v.says("#sign-in-problem", "The token was refused")
	v.paste(" " + w.token + " ")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.says("#user", "demo")
	other := v.beside(w, w.at("/")) // the first window shares its token
	other.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	stranger := w.open(w.at("/"))
	stranger.says("#sign-in", "Whose history?")
}

// TestExpiredToken reports an expired token, at the start and while the page is open.
func TestExpiredToken(t *testing.T) {
	w := newWorld(t)
	secret := []byte("0123456789abcdef0123456789abcdef")
	w.stop()
	w.cfg.SecretFile = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(w.cfg.SecretFile, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	mint := func(life time.Duration) string {
		text, err := token.Mint(secret, "demo", "", life)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	v := w.open(w.at("/docs"))
	v.expects("401")
	v.expects("WebSocket connection to")
	v.do(chromedp.Navigate(w.at("/") + "#token=" + mint(-time.Minute)))
	v.says("#sign-in-problem", "The token was refused")
	v.do(chromedp.Navigate(w.at("/docs")), chromedp.Navigate(w.at("/")+"#token="+mint(3*time.Second-token.Leeway)))
	v.until("/refused|expired/.test(document.querySelector('#sign-in-problem')?.textContent)") // on a slow machine it expired earlier
	v.do(chromedp.Navigate(w.at("/docs")), chromedp.Navigate(w.signedIn("/")))
	v.says("#empty", "Nothing here yet")
}

// TestNothingKept works without browser storage; each page asks for the token.
func TestNothingKept(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter("for (const name of ['sessionStorage', 'localStorage']) Object.defineProperty(window, name, { get() { throw new DOMException('denied', 'SecurityError'); } });", w.signedIn("/"))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#list li:nth-child(2) .delete")
	v.lists("Low Tide", "On Maps", "plain.id")
	v.click("#undo")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#list li:nth-child(1) .title")
	v.until("location.pathname === '/player' && document.querySelector('#sign-in').checkVisibility()")
	v.paste(w.token)
	v.says("#resumed", "You stopped at 4:00")
	v.click("#play")
	v.seek(300)
	w.reaches("100", "playing", 300*time.Second)
}

// TestLongAndLive resumes a book of twelve hours, and a stream without a length.
func TestLongAndLive(t *testing.T) {
	w := newWorld(t)
	beat := `{"object":{"id":%q,"type":1},"kind":"stop","position_ms":%d,"duration_ms":%d,"event_time":%q}`
	at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	w.ask("POST", "/v1/heartbeats", fmt.Appendf(nil, `{"heartbeats":[`+beat+`,`+beat+`]}`, "book", 8*3_600_000, 12*3_600_000, at, "live", 3_723_000, 0, at), new(any))
	for id, seconds := range map[string]int{"book": 8 * 3600, "live": 3723} {
		v := w.open(w.signedIn("/player?id=" + id))
		v.until(fmt.Sprintf("document.querySelector('#clip').currentTime === %d && !document.querySelector('#clip').ended", seconds))
		v.click("#play")
		v.seek(seconds + 60)
		w.reaches(id, "playing", time.Duration(seconds+60)*time.Second)
	}
}

// TestOpenedWindow opens a window from another one: it copies the storage, and yet must be another device.
func TestOpenedWindow(t *testing.T) {
	w := newWorld(t)
	v := w.playing()
	name := v.text("#device")
	v.do(chromedp.Evaluate[chromedp.Void]("globalThis.other = open(location.href), 0"))
	const theirs = "other.document.querySelector('#device')?.textContent"
	v.until(fmt.Sprintf("/ window /.test(%s) && %[1]s !== %q", theirs, name))
	if again := v.text("#device"); again != name {
		t.Errorf("the first window was %q, and is %q", name, again)
	}
	v.until("other.document.querySelector('#connection').dataset.state === 'open' && !other.document.querySelector('#play').disabled")
	v.seek(200)
	v.until("other.document.querySelector('#elsewhere').checkVisibility() && other.document.querySelector('#elsewhere-text').textContent.includes(document.querySelector('#device').textContent + ' is playing this at 3:2')")
	kept, err := value[string](v, theirs)
	if err != nil {
		t.Fatal(err)
	}
	v.do(chromedp.Evaluate[chromedp.Void]("other.location.reload(), 0"))
	v.until("other.document.querySelector('#connection')?.dataset.state === 'open'")
	v.until(fmt.Sprintf("%s === %q", theirs, kept))
	v.do(chromedp.Evaluate[chromedp.Void]("other.close(), 0"))
}

func (v *window) paste(text string) {
	v.Helper()
	v.until("document.activeElement.id === 'token'")
	v.do(chromedp.SetValue(chromedp.CSS("#token"), text))
	v.press(kb.Enter)
}
