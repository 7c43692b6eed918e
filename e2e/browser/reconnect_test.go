//go:build browser

package browser_test

import (
	"fmt"
	"testing"
	"time"
)

// TestRestart takes the edge away from under a player. What it could not report waits, and
// arrives when the edge is back on the same port.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.signedIn(clip))
	v.live()
	v.click("#play")
	v.seek(100)
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
	v.says("#safe", "(pause)")
}

// TestReportsSurviveReload loads the page again while the edge is away... which it is only
// for reports, or there would be no page.
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

// stores waits until the browser has the clip up to a time, so that it can go there without
// the edge.
func (v *window) stores(seconds int) {
	v.Helper()
	v.until(fmt.Sprintf("((b) => b.length > 0 && b.end(b.length - 1) > %d)(document.querySelector('#clip').buffered)", seconds+1))
}
