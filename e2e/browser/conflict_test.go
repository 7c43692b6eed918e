//go:build browser

package browser_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestConflict asks a user who was offline where to continue, and overwrites nothing until the answer.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	v := w.paused()
	v.deaf()
	v.conflicts(w)
	if r := w.point("100"); r.PositionMS != 480_000 || r.State != "stopped" {
		t.Errorf("the old position was stored: %+v", r)
	}
	v.click("#stay")
	v.until("!document.querySelector('#conflict').checkVisibility()")
	w.eventually("it stays", func() bool {
		r := w.point("100")
		return r.State == "playing" && r.PositionMS >= 100_000 && r.PositionMS < 200_000
	})
}

// TestConflictWhileTheOtherGoesOn asks about the other device's current position. Going there changes nothing for
// the other device.
func TestConflictWhileTheOtherGoesOn(t *testing.T) {
	w := newWorld(t)
	v := w.paused()
	v.deaf()
	v.conflicts(w)
	w.report(entry{id: "100", title: "Low Tide", position: 6 * time.Minute})
	v.says("#conflict", "You went on to 6:00 on Living room")
	v.until("!document.querySelector('#elsewhere').checkVisibility()")
	v.click("#jump")
	v.until("document.querySelector('#clip').currentTime >= 360")
	w.reaches("100", "playing", 360*time.Second)
}

// TestConflictBeforeAnyAnswer also asks if the connection ended before the first answer, when the page has no
// record.
func TestConflictBeforeAnyAnswer(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.signedIn(clip))
	v.live()
	v.deaf()
	v.click("#play")
	v.seek(100)
	v.until("document.querySelector('#waiting').textContent !== '0'")
	v.click("#play")
	v.conflicts(w)
}

// TestRemovedMeanwhile goes on without a question: the other position is deleted.
func TestRemovedMeanwhile(t *testing.T) {
	w := newWorld(t)
	v := w.paused()
	v.deaf()
	w.ask(http.MethodDelete, "/v1/history/1/100", nil, &struct{}{})
	v.hears()
	v.click("#play")
	w.reaches("100", "playing", 100*time.Second)
	v.until("!document.querySelector('#conflict').checkVisibility()")
}

// TestRemovedWhileAsked ends the question when the record is deleted.
func TestRemovedWhileAsked(t *testing.T) {
	w := newWorld(t)
	v := w.paused()
	v.deaf()
	v.conflicts(w)
	w.ask(http.MethodDelete, "/v1/history/1/100", nil, &struct{}{})
	v.until("!document.querySelector('#conflict').checkVisibility()")
	w.reaches("100", "playing", 100*time.Second)
}

// TestClearedWhileAsked ends the question, and withdraws a note, after a clear, whose push names no object.
func TestClearedWhileAsked(t *testing.T) {
	w := newWorld(t)
	v := w.paused()
	w.report(entry{id: "100", title: "Low Tide", position: 5 * time.Minute})
	v.says("#elsewhere", "Living room left this at 5:00.")
	w.ask(http.MethodDelete, "/v1/history", nil, &struct{}{})
	v.until("!document.querySelector('#elsewhere').checkVisibility()")
	v.click("#play")
	w.reaches("100", "playing", 100*time.Second)
	v.click("#play")
	w.reaches("100", "paused", 100*time.Second)
	v.says("#safe", "(paused)")
	v.deaf()
	v.conflicts(w)
	v.click("#play")
	v.until(`Object.entries(sessionStorage).some(([name, text]) => name.includes('conflicts') && text.includes('"kind":"pause"'))`) // before the clear
	w.ask(http.MethodDelete, "/v1/history", nil, &struct{}{})
	v.until("!document.querySelector('#conflict').checkVisibility()")
	v.do(chromedp.Navigate(w.at("/")))
	v.live()
	if r := w.point("100"); r != nil {
		t.Errorf("it is back: %+v", r)
	}
}

// TestConflictCounts finishes a viewing offline: it counts as a play, wherever the user continues. The player of
// another object, opened in between, asks nothing.
func TestConflictCounts(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "200", title: "Winter Roads", position: 3 * time.Minute, age: time.Hour})
	v := w.playing()
	w.reaches("100", "playing", 100*time.Second)
	v.deaf()
	w.report(entry{id: "100", title: "Low Tide", position: 8 * time.Minute})
	v.seek(598)
	v.until("document.querySelector('#clip').ended")
	v.click("#play") // once more
	v.until("((at) => at > 1 && at < 500)(document.querySelector('#clip').currentTime)")
	v.seek(50)
	v.until("document.querySelector('#clip').currentTime > 50.5")
	v.click("#play")
	v.until("document.querySelector('#waiting').textContent >= '5'") // the jump, the end, the beginning, the other jump, and the pause
	v.do(chromedp.Navigate(w.at("/player?id=200&type=1")))
	v.says("#resumed", "You stopped at 3:00")
	v.until("/finish.*stop/.test(sessionStorage.getItem(Object.keys(sessionStorage).find((name) => name.includes('conflicts')) ?? ''))") // both viewings
	v.until("!document.querySelector('#conflict').checkVisibility()")
	v.do(chromedp.Navigate(w.at(clip)))
	v.says("#conflict", "You went on to 8:00 on Living room")
	v.click("#stay")
	w.eventually("the play counts, and it is where the user is", func() bool {
		r := w.point("100")
		return r.Plays == 1 && r.PositionMS > 50_000 && r.PositionMS < 120_000
	})
	v.until("document.querySelector('#waiting').textContent === '0' && !document.querySelector('#conflict').checkVisibility()")
	if r := w.point("200"); r.PositionMS != 180_000 || r.Device != "Living room" {
		t.Errorf("the other object: %+v", r)
	}
}

// TestConflictUnanswered asks again after a reload, and remembers the user's position.
func TestConflictUnanswered(t *testing.T) {
	w := newWorld(t)
	v := w.paused()
	v.deaf()
	v.conflicts(w)
	v.seek(200)
	v.until("document.querySelector('#clip').currentTime > 202")
	v.do(chromedp.Reload())
	v.says("#conflict", "You went on to 8:00 on Living room")
	v.until("document.querySelector('#clip').currentTime > 202 && document.querySelector('#clip').currentTime < 300")
	if r := w.point("100"); r.PositionMS != 480_000 {
		t.Errorf("before the answer it is at %d", r.PositionMS)
	}
	v.click("#stay")
	w.eventually("it has stopped there", func() bool {
		r := w.point("100")
		return r.State == "stopped" && r.PositionMS > 202_000 && r.PositionMS < 300_000
	})
}

// TestCloseAfterAnotherWentOn closes a paused player after another device went on: the other device's position
// stays.
func TestCloseAfterAnotherWentOn(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.signedIn(clip))
	v.live()
	v.click("#play")
	v.until("document.querySelector('#watched').textContent >= '0:11'") // old enough to move the resume point
	v.click("#play")
	w.reaches("100", "paused", 10*time.Second)
	v.until("document.querySelector('#waiting').textContent === '0'")
	w.report(entry{id: "100", title: "Low Tide", position: 8 * time.Minute})
	v.says("#elsewhere", "Living room left this at 8:00.")
	v.do(chromedp.Navigate(w.at("/")))
	v.live()
	if r := w.point("100"); r.PositionMS != (8 * time.Minute).Milliseconds() {
		t.Errorf("afterwards: %+v", r)
	}
}

// conflicts has another device go on while the page is offline, and then connects the page.
func (v *window) conflicts(w *world) {
	v.Helper()
	w.report(entry{id: "100", title: "Low Tide", position: 480 * time.Second})
	v.hears()
	v.click("#play")
	v.says("#conflict", "You went on to 8:00 on Living room")
}

// deaf disconnects the page from the edge, like a network failure.
func (v *window) deaf() {
	v.Helper()
	v.expects("/v1/nowhere")
	v.do(chromedp.Evaluate[chromedp.Void](`{
		const Socket = WebSocket;
		const ask = fetch;
		window.deaf = true;
		fetch = (...a) => (window.deaf ? Promise.reject(new TypeError('deaf')) : ask(...a));
		WebSocket = class extends Socket {
			constructor(address, protocols) {
				if (window.deaf) address.pathname = '/v1/nowhere';
				super(address, protocols);
			}
		};
		dispatchEvent(new Event('offline'));
	}`))
	v.says("#connection", "Reconnecting")
}

// hears reconnects the page.
func (v *window) hears() {
	v.Helper()
	v.do(chromedp.Evaluate[chromedp.Void]("window.deaf = false; dispatchEvent(new Event('online'))"))
	v.live()
}
