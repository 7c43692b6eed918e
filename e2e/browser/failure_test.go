//go:build browser

package browser_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// losing has what is asked of a path reach the edge, and the answers get lost. Reads are answered.
const losing = `const edge = window.fetch;
	window.fetch = async (address, request) => {
		const answer = await edge(address, request);
		if (request.method !== 'GET' && String(address).includes(%q)) throw new TypeError('losing');
		return answer;
	};`

// failing has the requests to a path find no edge as long as window.failing is true.
const failing = `const edge = window.fetch;
	window.failing = true;
	window.fetch = (address, request) => (window.failing && (request?.method + ' ' + address).includes(%q) ? Promise.reject(new TypeError('failing')) : edge(address, request));`

// TestTryAgain does again each of several things that failed in the same way.
func TestTryAgain(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "/v1/history/mark"), w.signedIn("/"))
	for _, n := range []int{1, 3} {
		v.click(fmt.Sprintf("#list li:nth-child(%d) .mark", n))
		v.click("#mark-dialog [value=watched]")
		v.says("#problem", "The entry could not be marked: no connection.")
	}
	v.until("!(window.failing = false)")
	v.click("#again")
	v.until("document.querySelectorAll('#list .at.done').length === 3 && !document.querySelector('#problem').checkVisibility()")
}

// TestClearOfATypeIsOfThatType asks anew before it tries again, whatever is listed by then.
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

// TestDoneWithoutAnAnswer says no more that something could not be done once it reads that it was.
func TestDoneWithoutAnAnswer(t *testing.T) {
	for path, act := range map[string][2]string{
		"/v1/history":          {"document.querySelector('#clear').click(); document.querySelector('#clear-yes').click()", "The history could not be cleared"},
		"/v1/history/mark":     {"document.querySelector('#list li:nth-child(2) .mark').click(); document.querySelector('#mark-dialog [value=watched]').click()", "The entry could not be marked"},
		"/v1/continue/dismiss": {"document.querySelector('#cards .dismiss').click()", "The entry could not be removed from continue watching"},
	} {
		t.Run(strings.TrimPrefix(path, "/v1/"), func(t *testing.T) {
			w := newWorld(t)
			w.report(library...)
			v := w.openAfter(fmt.Sprintf(losing, path), w.signedIn("/"))
			v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
			v.until("document.querySelectorAll('#cards li').length > 1")
			v.live()
			v.do(chromedp.Evaluate[chromedp.Void]("{ window.told = new Set(); new MutationObserver(() => told.add(document.querySelector('#problem-text').textContent)).observe(document.querySelector('#problem'), { subtree: true, childList: true, characterData: true }); " + act[0] + " }"))
			v.until(fmt.Sprintf("[...told].some((text) => text.includes(%q))", act[1]))
			v.do(chromedp.Evaluate[chromedp.Void]("dispatchEvent(new Event('offline')); dispatchEvent(new Event('online'))"))
			v.until("!document.querySelector('#problem').checkVisibility()")
		})
	}
}

// TestUndoOfWhatCouldNotBeDeleted keeps what the user has taken back before it was deleted, whatever is tried again.
func TestUndoOfWhatCouldNotBeDeleted(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/"))
	v.deletes(2, "Winter Roads")
	v.expects("ERR_BLOCKED_BY_CLIENT")
	v.blocked("/v1/*")
	v.do(chromedp.Reload())
	v.says("#toast", "Deleted “Winter Roads”")
	v.says("#problem", "The entries could not be deleted")
	v.click("#undo")
	v.says("#problem", "The entry could not be brought back")
	v.blocked()
	v.click("#again")
	v.lists("Winter Roads", "Low Tide", "On Maps", "plain.id")
	v.until("!document.querySelector('#problem').checkVisibility()")
	v.nothingToBringBack()
	if got := len(w.ids()); got != 4 {
		t.Errorf("%d entries are left", got)
	}
}

// TestDeletedAgain does not bring back after a reload what was taken back without an answer, and deleted again.
func TestDeletedAgain(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(losing, "/v1/import"), w.signedIn("/"))
	v.deletes(2, "Winter Roads")
	v.do(chromedp.Reload())
	v.says("#toast", "Deleted “Winter Roads”")
	v.live()
	v.click("#undo")
	v.lists("Winter Roads", "Low Tide", "On Maps", "plain.id")
	v.until("!document.querySelector('#problem').checkVisibility()")
	v.click("#list li:nth-child(1) .delete")
	v.keeps("Winter Roads")
	v.nothingToBringBack()
	v.do(chromedp.Reload())
	v.lists("Low Tide", "On Maps", "plain.id")
	w.eventually("it is deleted", func() bool { return slices.Equal(w.ids(), []string{"100", "102", "plain.id"}) })
}

// TestDeletedAndPlayedInACut brings back what another device has added while the page was told of nothing.
func TestDeletedAndPlayedInACut(t *testing.T) {
	w := newWorld(t)
	v := w.holdsADelete()
	v.deaf()
	w.report(entry{id: "100", title: "Low Tide", position: 9 * time.Minute})
	v.hears()
	v.keeps("540000")
	v.do(chromedp.Reload())
	v.says("#toast", "Deleted “Low Tide”")
	v.click("#undo")
	w.eventually("it is back", func() bool { r := w.point("100"); return r != nil && r.PositionMS == 540_000 })
}

// TestClearedElsewhereWhileAsked asks no more as what to mark an entry that is gone.
func TestClearedElsewhereWhileAsked(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/"))
	v.live()
	v.expects("404") // for the sessions of what is gone
	v.click("#list li:nth-child(2) .mark")
	v.until("document.querySelector('#mark-dialog').open")
	w.ask(http.MethodDelete, "/v1/history", nil, &struct{}{})
	v.until("!document.querySelector('#mark-dialog').open && document.querySelectorAll('#list li').length === 0")
}

// TestRefusedStaysTold says that a mark was not done as long as it was not, whatever else changes: a film half seen is as one that was marked
// as not watched, but for the place.
func TestRefusedStaysTold(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "/v1/history/mark"), w.signedIn("/"))
	v.live()
	v.click("#list li:nth-child(1) .mark")
	v.click("#mark-dialog [value=unwatched]")
	v.says("#problem", "The entry could not be marked: no connection.")
	w.report(entry{id: "plain.id", position: time.Minute})
	v.lists("plain.id", "Low Tide", "Winter Roads", "On Maps")
	v.says("#problem", "The entry could not be marked: no connection.")
	v.until("!(window.failing = false)")
	v.click("#again")
	w.eventually("it is marked", func() bool { return w.point("100").PositionMS == 0 })
	v.until("!document.querySelector('#problem').checkVisibility()")
}

// TestDeletedTwice brings back all of an entry that was played anew between two deletes, also at the second attempt.
func TestDeletedTwice(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "/v1/import"), w.signedIn("/"))
	v.live()
	v.deletes(1, "Low Tide")
	v.do(chromedp.Reload())
	v.lists("Winter Roads", "On Maps", "plain.id")
	v.live()
	w.report(entry{id: "100", title: "Low Tide Again", position: time.Minute})
	v.lists("Low Tide Again", "Winter Roads", "On Maps", "plain.id")
	v.deletes(1, "Low Tide Again")
	v.do(chromedp.Reload())
	v.says("#toast", "Deleted “Low Tide Again”")
	v.click("#undo")
	v.says("#problem", "The entry could not be brought back")
	v.until("!(window.failing = false)")
	v.click("#again")
	w.eventually("all of it is back", func() bool {
		r := w.point("100")
		return r != nil && r.PositionMS == 60_000 && r.FurthestMS == 240_000
	})
	v.until("!document.querySelector('#problem').checkVisibility()")
	v.nothingToBringBack()
}

// TestTakenBackWhileItIsTried tells no more of a delete that failed after the user had taken it back, and does not try it again.
func TestTakenBackWhileItIsTried(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "DELETE "), w.signedIn("/"))
	v.deletes(2, "Winter Roads")
	v.do(chromedp.Reload())
	v.says("#toast", "Deleted “Winter Roads”")
	v.says("#problem", "The entries could not be deleted")
	v.do(chromedp.Evaluate[chromedp.Void](`{
		const ask = fetch;
		window.failed = 0;
		window.failing = false;
		fetch = async (...a) => {
			if (a[1].method !== 'DELETE') return ask(...a);
			await new Promise((resolve) => setTimeout(resolve, 1000));
			window.failed++;
			throw new TypeError('late');
		};
		document.querySelector('#again').click();
	}`))
	v.click("#undo")
	v.until("window.failed === 1")
	v.nothingToBringBack()
	v.until("!document.querySelector('#problem').checkVisibility()")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	if got := len(w.ids()); got != 4 {
		t.Errorf("%d entries are left", got)
	}
}

// TestPlayedAfterAFailedDelete brings back what was played between a delete that failed and the one that worked.
func TestPlayedAfterAFailedDelete(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "DELETE "), w.signedIn("/"))
	v.live()
	v.deletes(1, "Low Tide")
	v.says("#problem", "The entries could not be deleted")
	v.until("(window.backups = () => performance.getEntriesByType('resource').filter(({ name }) => name.includes('/v1/export')).length, window.before = backups()) > 0")
	w.report(entry{id: "100", title: "Low Tide", position: 7 * time.Minute})
	v.says("#list", "7:00 of 10:00")
	v.until("backups() > before")
	v.until("!(window.failing = false)")
	v.click("#again")
	v.lists("Winter Roads", "On Maps", "plain.id")
	v.until("!document.querySelector('#problem').checkVisibility()")
	v.do(chromedp.Reload())
	v.says("#toast", "Deleted “Low Tide”")
	v.click("#undo")
	w.eventually("it is back", func() bool { r := w.point("100"); return r != nil && r.PositionMS == 420_000 })
}

// TestClearedWithoutAnAnswer brings back nothing that was cleared since, although nobody said that it was.
func TestClearedWithoutAnAnswer(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "/v1/import")+`{
		const edge = window.fetch;
		window.fetch = async (address, request) => {
			const answer = await edge(address, request);
			if (request?.method === 'DELETE' && String(address).endsWith('/v1/history')) throw new TypeError('losing');
			return answer;
		};
	}`, w.signedIn("/"))
	v.deletes(1, "Low Tide")
	v.do(chromedp.Reload())
	v.says("#toast", "Deleted “Low Tide”")
	v.live()
	v.click("#undo")
	v.says("#problem", "The entry could not be brought back")
	v.click("#clear")
	v.click("#clear-yes")
	v.until("document.querySelectorAll('#list li').length === 0 && !document.querySelector('#problem').checkVisibility()")
	v.nothingToBringBack()
}

// TestDeletedAfterAClear deletes what was played since the history was cleared, and deleted before the page knew that it was cleared.
func TestDeletedAfterAClear(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(`const edge = window.fetch;
		window.late = [];
		window.fetch = async (address, request) => {
			const answer = await edge(address, request);
			if (request?.method === 'DELETE' && String(address).endsWith('/v1/history')) await new Promise((resolve) => late.push(resolve));
			return answer;
		};`, w.signedIn("/"))
	v.live()
	v.click("#clear")
	v.click("#clear-yes")
	v.until("late.length === 1 && document.querySelectorAll('#list li').length === 0")
	w.report(entry{id: "new", title: "New Moon", position: time.Minute})
	v.deletes(1, "New Moon")
	v.until("(late.pop()(), true)")
	w.eventually("it is deleted", func() bool { return w.point("new") == nil })
	v.until("document.querySelectorAll('#list li').length === 0 && !document.querySelector('#problem').checkVisibility()")
}

// TestMarkedWithoutPushes marks what another device has deleted: it is gone, and stays so.
func TestMarkedWithoutPushes(t *testing.T) {
	w := newWorld(t)
	v := w.openWithoutPushes("")
	v.expects("/viewings") // of what is gone
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	w.ask(http.MethodDelete, "/v1/history/1/100", nil, new(any))
	v.click("#list li:nth-child(1) .mark")
	v.click("#mark-dialog [value=watched]")
	v.lists("Winter Roads", "On Maps", "plain.id")
	if r := w.point("100"); r != nil {
		t.Errorf("what was deleted is there again: %+v", r)
	}
}

// TestMarkedAndDeleted deletes an entry after it was marked, however late that is answered.
func TestMarkedAndDeleted(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(`const edge = window.fetch;
		window.late = [];
		window.fetch = async (address, request) => {
			if (String(address).includes('/v1/history/mark')) await new Promise((resolve) => late.push(resolve));
			return edge(address, request);
		};`, w.signedIn("/"))
	v.live()
	v.click("#list li:nth-child(1) .mark")
	v.click("#mark-dialog [value=watched]")
	v.until("late.length === 1")
	v.deletes(1, "Low Tide")
	v.click("#cards .dismiss") // which deletes what waits
	v.says("#toast", "removed from continue watching")
	if w.point("100") == nil {
		t.Error("it is deleted before it is marked")
	}
	v.until("(late.pop()(), true)")
	w.eventually("it is deleted", func() bool { return w.point("100") == nil })
	v.lists("Winter Roads", "On Maps", "plain.id")
}
