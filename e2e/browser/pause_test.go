//go:build browser

package browser_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPause switches recording off and on.
func TestPause(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	history := w.open(w.signedIn("/"))
	history.click("#recording")
	history.says("#paused", "Recording is paused")
	history.until("document.querySelector('#recording').getAttribute('aria-checked') === 'false'")
	player := history.beside(w, w.signedIn("/player?id=new"))
	player.click("#play")
	player.says("#safe", "paused: nothing was kept")
	if w.point("new") != nil {
		t.Error("it was recorded")
	}
	history.do(chromedp.Reload())
	history.says("#paused", "Recording is paused")
	history.click("#recording")
	history.until("document.querySelector('#recording').getAttribute('aria-checked') === 'true'")
	history.until("!document.querySelector('#paused').checkVisibility()")
	player.seek(100)
	w.reaches("new", "playing", 100*time.Second)
}

// TestIncognito leaves no trace of a viewing.
func TestIncognito(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.signedIn(clip))
	v.click("#incognito")
	v.click("#play")
	v.says("#safe", "on request: nothing was kept")
	if r := w.point("100"); r != nil {
		t.Errorf("it was recorded: %+v", r)
	}
}

// TestPauseElsewhere follows the switch of another window, even if the first read of the setting failed.
func TestPauseElsewhere(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	first := w.open(w.signedIn("/"))
	second := w.openAfter(fmt.Sprintf(failing, "/v1/settings"), w.signedIn("/"))
	second.says("#problem", "The settings could not be read")
	first.live()
	second.live()
	second.until("!(window.failing = false)")
	first.click("#recording")
	second.says("#paused", "Recording is paused")
	second.until("document.querySelector('#recording').ariaChecked === 'false' && !document.querySelector('#problem').checkVisibility()")
	first.click("#recording")
	second.until("document.querySelector('#recording').ariaChecked === 'true' && !document.querySelector('#paused').checkVisibility()")
}
