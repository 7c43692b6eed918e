//go:build browser

package browser_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestDeleteAndUndo hides the row at once, and deletes it after six seconds.
func TestDeleteAndUndo(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.click("#list li:nth-child(2) .delete")
	v.lists("Low Tide", "On Maps", "plain.id")
	v.says("#toast", "Deleted “Winter Roads”")
	v.click("#undo")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#list li:nth-child(2) .delete")
	v.click("#list li:nth-child(1) .delete")
	v.says("#toast", "Deleted 2 entries")
	v.cards("On Maps", "plain.id")
	if got := len(w.ids()); got != 4 {
		t.Errorf("%d entries before the time is up", got)
	}
	w.eventually("both are deleted", func() bool { return slices.Equal(w.ids(), []string{"102", "plain.id"}) })
	v.until("!document.querySelector('#toast.shown')")
	v.lists("On Maps", "plain.id")
}

// TestLeavingSends sends all pending deletes in one request when the page is left.
func TestLeavingSends(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.click("#list li:nth-child(2) .delete")
	v.click("#list li:nth-child(1) .delete")
	v.says("#toast", "Deleted 2 entries")
	v.do(chromedp.Navigate(w.at("/docs")))
	w.eventually("both are deleted", func() bool { return slices.Equal(w.ids(), []string{"102", "plain.id"}) })
	v.do(chromedp.Navigate(w.at("/")))
	v.cards("On Maps", "plain.id")
	v.click("#list li:nth-child(1) .mark")
	v.click("#mark-dialog [value=watched]")
	v.do(chromedp.Reload())
	v.says("#list li:nth-child(1)", "Completed")
	v.click("#cards .dismiss")
	v.lists("On Maps", "plain.id")
	v.do(chromedp.Reload())
	v.until("document.querySelectorAll('#list li').length === 2 && !document.querySelector('#continue').checkVisibility()")
}

// TestDeleteFails restores the row with the error in its place.
func TestDeleteFails(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "POST"), w.signedIn("/"))
	v.live()
	v.click("#list li:nth-child(2) .delete")
	v.lists("Low Tide", "On Maps", "plain.id")
	v.says("#list li:nth-child(2) .failed", "The entry could not be deleted: no connection.")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.says("#toast", "The entry could not be deleted")
	v.until("!document.querySelector('#undo').checkVisibility()")
	v.click("#list li:nth-child(1) .mark")
	v.click("#mark-dialog [value=watched]")
	v.says("#list li:nth-child(1)", "Completed")
	v.says("#list li:nth-child(1) .failed", "The entry could not be marked: no connection.")
	v.says("#list li:nth-child(1)", "4:00 of 10:00")
	v.until("!(window.failing = false)")
	v.click("#list li:nth-child(2) .delete")
	v.lists("Low Tide", "On Maps", "plain.id")
	w.eventually("it is deleted", func() bool { return len(w.ids()) == 3 })
}

// TestUndoByKey undoes a delete and a dismissal that left nothing else to focus.
func TestUndoByKey(t *testing.T) {
	w := newWorld(t)
	w.report(library[0])
	v := w.open(w.signedIn("/"))
	v.cards("Low Tide")
	v.click("#cards .dismiss")
	v.says("#toast", "removed from continue watching")
	v.until("document.activeElement.id === 'list'")
	undo := chromedp.KeyEvent("z", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	v.do(undo)
	v.cards("Low Tide")
	v.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#list a').focus()"))
	v.press(kb.Delete)
	v.says("#toast", "Deleted “Low Tide”")
	v.until("document.activeElement.id === 'list'")
	v.do(undo)
	v.lists("Low Tide")
	v.until("document.activeElement.textContent === 'Low Tide'")
}

// TestDismissAndUndo dismisses a card on every page of the user, and undoes that.
func TestDismissAndUndo(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	other := w.open(w.signedIn("/"))
	v.cards("Low Tide", "On Maps", "plain.id")
	other.cards("Low Tide", "On Maps", "plain.id")
	v.click("#cards li:nth-child(2) .dismiss")
	v.cards("Low Tide", "plain.id")
	v.says("#toast", "“On Maps” removed from continue watching")
	v.click("#undo")
	v.cards("Low Tide", "On Maps", "plain.id")
	v.click("#cards li:nth-child(1) .dismiss")
	v.cards("On Maps", "plain.id")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	other.cards("On Maps", "plain.id") // after the undo time
	w.report(entry{id: "100", title: "Low Tide", position: 5 * time.Minute})
	v.cards("Low Tide", "On Maps", "plain.id")
}

func (v *window) cards(titles ...string) {
	v.Helper()
	v.until(fmt.Sprintf("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === %q", strings.Join(titles, "|")))
}

// noSocket blocks WebSockets, and with them all pushes.
const noSocket = `window.WebSocket = class extends WebSocket {
		constructor(address, protocols) {
			address.pathname = '/v1/nowhere';
			super(address, protocols);
		}
	};`

// openWithoutPushes opens the history without pushes, after a script.
func (w *world) openWithoutPushes(script string) *window {
	w.Helper()
	w.report(library...)
	v := w.open(w.at("/docs"))
	v.expects("/v1/nowhere")
	v.beforePages(noSocket + script)
	v.do(chromedp.Navigate(w.signedIn("/")))
	return v
}
