//go:build browser

package browser_test

import (
	"fmt"
	"net/http"
	"testing"
)

// failing makes the requests to a path fail as long as window.failing is true.
const failing = `const edge = window.fetch;
	window.failing = true;
	window.fetch = (address, request) => (window.failing && (request?.method + ' ' + address).includes(%q) ? Promise.reject(new TypeError('failing')) : edge(address, request));`

// TestClearOfATypeIsOfThatType retries a failed clear only after another question, even if the filter changes
// meanwhile.
func TestClearOfATypeIsOfThatType(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "/v1/history?type="), w.signedIn("/"))
	v.only("1")
	v.lists("Low Tide", "plain.id")
	v.click("#clear")
	v.click("#clear-yes")
	v.says("#problem", "The history could not be cleared: no connection.")
	v.only("")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.until("!(window.failing = false)")
	v.click("#again")
	v.says("#clear-what", "every entry of the type Video")
	v.click("#clear-yes")
	v.lists("Winter Roads", "On Maps")
	v.until("!document.querySelector('#problem').checkVisibility()")
	if got := len(w.ids()); got != 2 {
		t.Errorf("%d entries are left", got)
	}
}

// TestMarkedWithoutPushes marks an object that another device has deleted: it stays deleted.
func TestMarkedWithoutPushes(t *testing.T) {
	w := newWorld(t)
	v := w.openWithoutPushes("")
	v.expects("/viewings") // the object is gone
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	w.ask(http.MethodDelete, "/v1/history/1/100", nil, new(any))
	v.click("#list li:nth-child(1) .mark")
	v.click("#mark-dialog [value=watched]")
	v.lists("Winter Roads", "On Maps", "plain.id")
	if r := w.point("100"); r != nil {
		t.Errorf("what was deleted is there again: %+v", r)
	}
}
