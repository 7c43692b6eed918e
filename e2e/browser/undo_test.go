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
	"github.com/chromedp/chromedp/kb"
)

func TestDeleteAndUndo(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/"))
	v.click("#list li:nth-child(2) .delete")
	v.lists("Low Tide", "On Maps", "plain.id")
	v.says("#toast", "Deleted “Winter Roads”")
	v.click("#undo")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#list li:nth-child(2) .delete")
	v.click("#list li:nth-child(1) .delete")
	v.says("#toast", "Deleted 2 entries")
	if got := len(w.ids()); got != 4 {
		t.Errorf("%d entries before the time is up", got)
	}
	w.eventually("both are deleted", func() bool { return slices.Equal(w.ids(), []string{"102", "plain.id"}) })
	v.lists("On Maps", "plain.id")
	v.click("#list li:nth-child(1) .delete")
	v.lists("plain.id")
	v.keeps("On Maps")
	v.do(chromedp.Navigate(w.at("/docs"))) // who goes away has decided
	w.eventually("the third one is deleted", func() bool { return slices.Equal(w.ids(), []string{"plain.id"}) })
}

// TestDeleteAfterADismissal deletes before the edge has answered what was dismissed: it can be taken back as any other.
func TestDeleteAfterADismissal(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/"))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.until("document.querySelectorAll('#cards li').length > 1")
	v.do(chromedp.Evaluate[chromedp.Void](`{
		const ask = fetch;
		window.answered = 0;
		fetch = async (...a) => {
			const answer = await ask(...a);
			if (/dismiss|continue/.test(String(a[0]))) setTimeout(() => window.answered++, 500);
			return answer;
		};
		document.querySelector('#cards .dismiss').click();
		document.querySelector('#list li:nth-child(2) .delete').click();
	}`))
	v.says("#toast", "Deleted “Winter Roads”")
	v.until("window.answered >= 2")
	v.says("#toast", "Deleted “Winter Roads”")
	if got := len(w.ids()); got != 4 {
		t.Errorf("%d entries before the time is up", got)
	}
	v.click("#undo")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
}

// TestUndoOfTheLast takes back by keyboard what left nothing to put the focus on but the search.
func TestUndoOfTheLast(t *testing.T) {
	w := newWorld(t)
	w.report(library[0])
	v := w.open(w.signedIn("/"))
	v.lists("Low Tide")
	v.click("#cards .dismiss")
	v.says("#toast", "removed from continue watching")
	v.until("document.activeElement.id === 'search' && document.querySelectorAll('#cards li').length === 0")
	undo := chromedp.KeyEvent("z", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	v.do(undo)
	v.until("document.querySelectorAll('#cards li').length === 1")
	v.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#list a').focus()"))
	v.press(kb.Delete)
	v.says("#toast", "Deleted “Low Tide”")
	v.until("document.activeElement.id === 'search'")
	v.do(undo)
	v.lists("Low Tide")
	v.click("#search")
	v.press("low")
	v.says("#note", "1 entry found")
	v.click("#list .delete")
	v.says("#toast", "Deleted “Low Tide”")
	v.until("document.activeElement.id === 'search'")
	v.do(undo) // of the delete: nothing was typed since
	v.until("document.querySelector('#search').value === 'low'")
	v.lists("Low Tide")
}

// noSocket has pages told of nothing: what lies before the edge keeps WebSockets out.
const noSocket = `window.WebSocket = class extends WebSocket {
		constructor(address, protocols) {
			address.pathname = '/v1/nowhere';
			super(address, protocols);
		}
	};`

// openWithoutPushes opens the history where pages are told of nothing, and run a script first.
func (w *world) openWithoutPushes(script string) *window {
	w.Helper()
	w.report(library...)
	v := w.open(w.at("/docs"))
	v.expects("/v1/nowhere")
	v.beforePages(noSocket + script)
	v.do(chromedp.Navigate(w.signedIn("/")))
	return v
}

// TestDeletedCard takes what was deleted out of what to go on with, also while the page is told of nothing.
func TestDeletedCard(t *testing.T) {
	w := newWorld(t)
	v := w.openWithoutPushes(`const edge = window.fetch;
		window.fetch = async (address, request) => {
			const answer = await edge(address, request);
			if (request?.method === 'DELETE') answer.json = () => Response.prototype.json.call(answer).finally(() => { window.deleted = true; });
			return answer;
		};`)
	v.until("document.querySelectorAll('#cards li').length === 3")
	v.click("#list li:nth-child(1) .delete")
	v.until("window.deleted")
	v.lists("Winter Roads", "On Maps", "plain.id")
	v.until("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === 'On Maps|plain.id'")
}

// TestDismissAndUndo takes a card away, on every page of the user, and back.
func TestDismissAndUndo(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	cards := func(v *window, titles string) {
		t.Helper()
		v.until(fmt.Sprintf("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === %q", titles))
	}
	v, other := w.open(w.signedIn("/")), w.open(w.signedIn("/"))
	cards(v, "Low Tide|On Maps|plain.id")
	cards(other, "Low Tide|On Maps|plain.id")
	v.click("#cards li:nth-child(2) .dismiss")
	cards(v, "Low Tide|plain.id")
	v.says("#toast", "“On Maps” removed from continue watching")
	v.click("#undo") // before the message ends by itself
	cards(v, "Low Tide|On Maps|plain.id")
	cards(other, "Low Tide|On Maps|plain.id")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#cards li:nth-child(1) .dismiss")
	cards(v, "On Maps|plain.id")
	cards(other, "On Maps|plain.id")
	w.report(entry{id: "100", title: "Low Tide", position: 5 * time.Minute})
	cards(v, "Low Tide|On Maps|plain.id")
	const unsaid = "sessionStorage.getItem('playhead.undo.demo.dismissed') === null" // no page says any more that it is removed
	v.until(unsaid)
	v.click("#cards li:nth-child(1) .dismiss")
	v.says("#toast", "“Low Tide” removed from continue watching")
	w.ask(http.MethodPost, "/v1/continue/dismiss", []byte(`{"objects":[{"id":"100","type":1}],"dismissed":false}`), &struct{}{})
	cards(v, "Low Tide|On Maps|plain.id")
	v.until(unsaid)
}

// TestDismissedCardStaysAway has the page learn what to go on with from an answer that is older than what was dismissed or deleted since.
func TestDismissedCardStaysAway(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(`const edge = window.fetch;
		window.late = [];
		window.fetch = async (address, request) => {
			const answer = await edge(address, request);
			if (!window.hold || !String(address).includes('/v1/continue?')) return answer;
			const body = await answer.json();
			await new Promise((resolve) => late.push(resolve));
			answer.json = async () => body;
			return answer;
		};
		window.watch = (title) => {
			window.again = 0;
			new MutationObserver(() => {
				if ([...document.querySelectorAll('#cards .title')].some((a) => a.textContent === title)) window.again++;
			}).observe(document.querySelector('#cards'), { subtree: true, childList: true, characterData: true });
		};`, w.signedIn("/"))
	cards := func(titles string) {
		t.Helper()
		v.until(fmt.Sprintf("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === %q", titles))
	}
	cards("Low Tide|On Maps|plain.id")
	v.live()
	one := func(id string) entry {
		return entry{id: strings.ReplaceAll(id, " ", "-"), title: id, position: time.Minute}
	}
	overtaken := func(title string, decide func(), next entry) {
		t.Helper()
		v.until("window.hold = true")
		w.report(one("before " + title))
		v.until("late.length === 1")
		v.until("!(window.hold = false)")
		decide()
		v.until(fmt.Sprintf("(watch(%q), late.pop()(), true)", title))
		w.report(next) // the page shows it after all that it has read before
		v.until(fmt.Sprintf("document.querySelector('#cards .title').textContent === %q", next.title))
		if n, err := value[int](v, "window.again"); n != 0 || err != nil {
			t.Errorf("%q was shown again %d times: %v", title, n, err)
		}
	}
	overtaken("On Maps", func() {
		v.click("#cards li:nth-child(2) .dismiss")
		cards("before On Maps|Low Tide|plain.id")
	}, one("a"))
	overtaken("Low Tide", func() {
		v.click("#list li:nth-child(4) .delete")
		w.eventually("it is deleted", func() bool { return w.point("100") == nil })
		cards("before Low Tide|a|before On Maps|plain.id")
	}, one("b"))
}

// TestUndoOverAReload takes back what was done just before the page was loaded again.
func TestUndoOverAReload(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.deletes(2, "Winter Roads")
	v.do(chromedp.Reload())
	v.lists("Low Tide", "On Maps", "plain.id")
	v.says("#toast", "Deleted “Winter Roads”")
	v.click("#undo")
	v.until("document.querySelector('#list').textContent.includes('Winter Roads')")
	v.click("#cards li:nth-child(1) .dismiss")
	v.says("#toast", "removed from continue watching")
	v.do(chromedp.Reload())
	v.until("document.querySelectorAll('#cards li').length === 2")
	v.click("#undo")
	v.until("document.querySelectorAll('#cards li').length === 3")
	v.do(chromedp.Reload())
	v.until("document.querySelectorAll('#cards li').length === 3 && !document.querySelector('#toast.shown')")
}

// TestUndoComingBack takes back what was done before the page was left for another one.
func TestUndoComingBack(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.deletes(2, "Winter Roads")
	v.click("#list li:nth-child(1) .title")
	v.until("location.pathname === '/player' && !document.querySelector('#play').disabled")
	v.do(chromedp.Evaluate[chromedp.Void]("history.back()"))
	v.says("#toast", "Deleted “Winter Roads”")
	v.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#undo').click()"))
	v.until("document.querySelectorAll('#list .title').length === 4 && document.querySelector('#list').textContent.includes('Winter Roads')")
	v.nothingToBringBack()
	if got := len(w.ids()); got != 4 {
		t.Errorf("%d entries are left", got)
	}
}

// TestDeletedElsewhere says of no entry that it could not be deleted once another device has done so.
func TestDeletedElsewhere(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "DELETE "), w.signedIn("/"))
	v.live()
	v.click("#list li:nth-child(1) .delete")
	v.click("#list li:nth-child(1) .delete")
	v.says("#problem", "The entries could not be deleted, or not all of them")
	w.ask(http.MethodDelete, "/v1/history/1/100", nil, new(any))
	v.lists("Winter Roads", "On Maps", "plain.id")
	v.says("#problem", "The entries could not be deleted, or not all of them")
	w.ask(http.MethodDelete, "/v1/history/2/101", nil, new(any))
	v.until("!document.querySelector('#problem').checkVisibility()")
	v.lists("On Maps", "plain.id")
}

// TestUndoOnASlowLink leaves the page before it knows what would bring back an entry: that is deleted only when the page is there again.
func TestUndoOnASlowLink(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "/v1/export"), w.signedIn("/"))
	v.click("#list li:nth-child(2) .delete")
	v.says("#toast", "Deleted “Winter Roads”")
	v.do(chromedp.Navigate(w.at("/docs")))
	if n := len(w.ids()); n != 4 {
		t.Errorf("%d entries are left", n)
	}
	v.do(chromedp.Navigate(w.at("/")))
	v.says("#toast", "Deleted “Winter Roads”")
	v.lists("Low Tide", "On Maps", "plain.id")
	w.eventually("it is deleted", func() bool { return len(w.ids()) == 3 })
}

// deletes presses the button of an entry of the list, and waits until the page keeps what would bring it back.
func (v *window) deletes(nth int, title string) {
	v.Helper()
	v.click(fmt.Sprintf("#list li:nth-child(%d) .delete", nth))
	v.keeps(title)
}

// keeps waits until the page keeps what would bring back an entry: a title, or anything else of it.
func (v *window) keeps(of string) {
	v.Helper()
	v.until(fmt.Sprintf("JSON.parse(sessionStorage.getItem('playhead.undo.demo') ?? '[]').some(({ want, lines }) => want === 'gone' && lines.join().includes('%s'))", of))
}

// stopsTheClock has the message wait, as the pointer on it does.
func (v *window) stopsTheClock() {
	v.Helper()
	v.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#toast').dispatchEvent(new Event('pointerenter'))"))
}

// holdsADelete opens the history, and has one entry of it wait to be deleted.
func (w *world) holdsADelete() *window {
	w.Helper()
	v := w.openLibrary()
	v.live()
	v.deletes(1, "Low Tide")
	v.stopsTheClock()
	return v
}

// nothingToBringBack waits until the page keeps nothing that is still to be brought back.
func (v *window) nothingToBringBack() {
	v.Helper()
	v.until("!sessionStorage.getItem('playhead.undo.demo')?.includes('\"want\":\"back\"')")
}

// TestPlayedWithoutPushes leaves what another device has played since the page was told of anything: nothing would bring that back.
func TestPlayedWithoutPushes(t *testing.T) {
	w := newWorld(t)
	v := w.openWithoutPushes("")
	v.expects("412")
	v.deletes(1, "Low Tide")
	w.report(entry{id: "100", title: "Low Tide", position: 9 * time.Minute})
	v.do(chromedp.Reload())
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	if r := w.point("100"); r == nil || r.PositionMS != 540_000 {
		t.Errorf("what was played is %+v", r)
	}
	v.click("#list li:nth-child(1) .delete")
	w.eventually("it is deleted", func() bool { return w.point("100") == nil })
}

// TestDeletedByTwo brings back what was deleted on another page while it waited to be deleted here.
func TestDeletedByTwo(t *testing.T) {
	w := newWorld(t)
	v := w.holdsADelete()
	v.do(chromedp.Evaluate[chromedp.Void]("performance.clearResourceTimings()"))
	w.ask(http.MethodDelete, "/v1/history/1/100", nil, new(any))
	v.until("performance.getEntriesByType('resource').some(({ name }) => name.includes('/v1/continue'))") // since it was told of that
	v.click("#undo")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
}
