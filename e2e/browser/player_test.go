//go:build browser

package browser_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const clip = "/player?id=100&type=1&title=Low%20Tide"

// TestPlayer starts where the user stopped, and reports what is played, paused, sought
// and stopped.
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
	w.reaches("100", "paused", 4*time.Minute) // the first seconds of a viewing move nothing
	v.says("#safe", "(pause)")
	v.seek(500)
	w.reaches("100", "paused", 500*time.Second)
	v.click("#play")
	v.until("document.querySelector('#clip').currentTime > 501")
	v.do(chromedp.Navigate(w.at("/docs"))) // who goes away stops
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

// TestReload goes on where the page was when it was loaded again, in the middle of it.
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

// TestUnreadablePoint never takes an error for the beginning.
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

// seek moves the slider as a hand does.
func (v *window) seek(seconds int) {
	v.Helper()
	v.until("!document.querySelector('#position').disabled")
	v.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		"{const s = document.querySelector('#position'); s.value = %d; s.dispatchEvent(new Event('change'))}", seconds)))
}

// reaches waits until the record of an object is in a state, at a position or behind it.
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
