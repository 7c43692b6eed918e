//go:build browser

package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/playhead/playhead/all-in-one/allinone"
)

var library = []entry{
	{id: "100", title: "Low Tide", position: 4 * time.Minute, age: time.Minute},
	{id: "101", title: "Winter Roads", typ: 2, position: length, age: 2 * time.Minute},
	{id: "102", title: "On Maps", typ: 3, position: time.Minute, age: 26 * time.Hour},
	{id: "plain.id", position: 30 * time.Second, age: 100 * 24 * time.Hour / 2},
}

// openLibrary opens the history page of somebody who has the library.
func (w *world) openLibrary() *window {
	w.Helper()
	w.report(library...)
	v := w.open(w.signedIn("/"))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	return v
}

func TestListAndSearch(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.says("#list li:nth-child(1)", "4:00 of 10:00")
	v.says("#list li:nth-child(1)", "1 minute ago")
	v.says("#list li:nth-child(2)", "Completed")
	v.until("location.hash === '' && sessionStorage.length > 0")
	v.until("document.querySelector('#list progress').value === 0.4")
	v.until("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === 'Low Tide|On Maps|plain.id'")
	v.press("/")
	v.until("document.activeElement.id === 'search'")
	v.press(kb.Escape) // a browser in a test types the key that was dealt with
	v.press("ROADS")
	v.lists("Winter Roads")
	v.says("#note", "1 entry found")
	v.until("!document.querySelector('#continue').checkVisibility()")
	v.press(" nothing")
	v.says("#note", "Nothing found")
	v.press(kb.Escape)
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.press("plain")
	v.lists("plain.id")
}

// TestSearchLetters shows what the edge finds, in whatever case and with or without accents, and takes as many as fit into the box.
func TestSearchLetters(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("ü", 100)
	w.report(entry{id: "tr", title: "İstanbul", age: time.Minute}, entry{id: "gr", title: "ΟΔΥΣΣΕΥΣ", age: 2 * time.Minute}, entry{id: "de", title: "U\u0308ber " + long, age: 3 * time.Minute})
	v := w.open(w.signedIn("/"))
	v.until("document.querySelectorAll('#list .row').length === 3")
	for words, want := range map[string]string{"istanbul": "İstanbul", "ΟΔΥΣ": "ΟΔΥΣΣΕΥΣ", "uber": "U\u0308ber " + long, long: "U\u0308ber " + long} {
		v.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{const s = document.querySelector('#search'); s.value = %q; s.dispatchEvent(new Event('input'))}", words)))
		v.says("#note", "1 entry found")
		v.lists(want)
	}
	w.report(entry{id: "he", title: "שלום!"})
	v.press("/")
	v.press(kb.Escape)
	v.says("#list li:nth-child(1)", "שלום!")
	v.rightToLeft("#list .title")
	v.click("#list .mark")
	v.rightToLeft("#mark-name")
	v.press(kb.Escape)
	v.click("#list .title")
	v.rightToLeft("#title")
}

// rightToLeft waits until an element has the title "שלום!" with the mark at its end, which is on the left.
func (v *window) rightToLeft(selector string) {
	v.Helper()
	v.until(fmt.Sprintf(`(() => {
		const node = document.querySelector(%q)?.firstChild;
		const left = (letter) => {
			const range = document.createRange();
			range.setStart(node, node.data.indexOf(letter));
			range.setEnd(node, node.data.indexOf(letter) + 1);
			return range.getBoundingClientRect().left;
		};
		return node?.data.includes('שלום!') && left('!') < left('ש');
	})()`, selector))
}

// TestNextPart shows of a series what comes next, also when the history does not know it.
func TestNextPart(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "h1", title: "Fog", position: length, age: 2 * time.Minute, episode: 1}, entry{id: "h2", title: "The Pilot Boat", position: length, age: time.Minute, episode: 2})
	v := w.open(w.signedIn("/"))
	v.says("#cards", "Season 1, episode 3")
	v.says("#cards", "Harbour Lights")
	v.says("#cards", "After The Pilot Boat")
	v.until("document.querySelector('#cards a[href]') === null && !document.querySelector('#cards progress').checkVisibility()")
	w.report(entry{id: "h3", title: "Night Tide", position: time.Minute, episode: 3})
	v.until("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === 'Night Tide'")
	v.until("document.querySelector('#cards a[href]') !== null && document.querySelector('#cards progress').checkVisibility()")
}

// TestGoOnFollows shows what to go on with in the order in which others play it, and no more once they have reached the end.
func TestGoOnFollows(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/"))
	cards := func(titles string) {
		t.Helper()
		v.until(fmt.Sprintf("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === %q", titles))
	}
	cards("Low Tide|On Maps|plain.id")
	v.live()
	w.report(entry{id: "102", title: "On Maps", typ: 3, position: 2 * time.Minute})
	cards("On Maps|Low Tide|plain.id")
	w.report(entry{id: "102", title: "On Maps", typ: 3, position: 9*time.Minute + 30*time.Second}) // in the credits
	cards("Low Tide|plain.id")
	w.report(entry{id: "100", title: "Low Tide", position: 15 * time.Second, session: "again"}) // sought back to the start
	cards("plain.id")
}

func TestTypeFilter(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	for typ, titles := range map[string][]string{"2": {"Winter Roads"}, "3": {"On Maps"}, "4": nil, "": {"Low Tide", "Winter Roads", "On Maps", "plain.id"}} {
		v.only(typ)
		v.lists(titles...)
	}
	v.only("4")
	v.says("#note", "Nothing of this type yet")
	w.report(entry{id: "book", typ: 77, position: time.Minute})
	v.only("")
	v.lists("book", "Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.until("[...document.querySelectorAll('#type option')].at(-1).textContent === 'Type 77'")
}

// TestLongHistory is read on as somebody scrolls.
func TestLongHistory(t *testing.T) {
	w := newWorld(t)
	var entries []entry
	for i := range 130 {
		entries = append(entries, entry{id: fmt.Sprint(i), position: time.Minute, age: time.Duration(i) * time.Hour})
	}
	w.report(entries...)
	v := w.openAfter(lateNews, w.signedIn("/"))
	for _, n := range []int{40, 80, 120, 130} {
		v.until(fmt.Sprintf("document.querySelectorAll('#list .row').length >= %d", n))
		v.do(chromedp.Evaluate[chromedp.Void]("scrollTo(0, document.body.scrollHeight)"))
	}
	v.until("new Set([...document.querySelectorAll('#list .title')].map((a) => a.textContent)).size === 130")
	v.until("!document.querySelector('#more').checkVisibility()")
}

// TestManyEntries are shown, selected and deleted, by a user who may not ask often, and a page that does not do with each entry
// what it has to do once.
func TestManyEntries(t *testing.T) {
	const many = 1100
	w := newWorld(t, func(c *allinone.Config) { c.UserRate, c.UserBurst = 20, 10 })
	var entries []entry
	for i := range many {
		entries = append(entries, entry{id: fmt.Sprint(i), position: time.Minute, age: time.Duration(i+1) * time.Minute})
	}
	w.report(entries[:many/2]...)
	w.report(entries[many/2:]...)
	v := w.open(w.at("/docs"))
	v.expects("429")
	v.beforePages(`window.parsed = window.reads = window.deletes = window.problems = 0;
		const [parse, edge] = [Date.parse, window.fetch];
		Date.parse = (text) => (window.parsed++, parse(text));
		window.fetch = async (address, request) => {
			const answer = await edge(address, request);
			if (answer.ok && String(address).includes('/v1/history?')) window.reads++;
			if (answer.ok && String(address).endsWith('/v1/history/delete')) window.deletes++;
			return answer;
		};
		addEventListener('DOMContentLoaded', () => {
			const problem = document.querySelector('#problem');
			if (problem) new MutationObserver(() => { if (!problem.hidden) window.problems++; }).observe(problem, { attributes: true });
		});`)
	v.do(chromedp.Navigate(w.signedIn("/")))
	for _, n := range []int{many / 3, many * 2 / 3, many} {
		v.until(fmt.Sprintf("(scrollTo(0, document.body.scrollHeight), document.querySelectorAll('#list .row').length >= %d)", n))
	}
	v.live()
	v.until("(window.parsed = 0) === 0")
	w.report(entry{id: "new", position: time.Minute})
	v.until("document.querySelector('#list .title').textContent === 'new'")
	if n, err := value[int](v, "window.parsed"); n > 30*many || err != nil {
		t.Errorf("for one entry the page has read %d times, %v", n, err)
	}
	v.until("(window.reads = 0, dispatchEvent(new Event('offline')), dispatchEvent(new Event('online')))") // it may have missed something
	v.until(fmt.Sprintf("window.reads >= %d && document.querySelectorAll('#list .row').length === %d", many/100, many+1))
	v.click("#select")
	v.click("#select-all")
	v.says("#selected", "1,101 selected")
	v.click("#select-delete")
	v.says("#toast", "Deleted 1,101 entries")
	v.until("document.querySelectorAll('#list .row').length === 0 && window.deletes === 2")
	if n, err := value[int](v, "window.problems"); n != 0 || err != nil {
		t.Errorf("the page had %d problems, %v", n, err)
	}
	v.do(chromedp.Navigate(w.at("/docs")), chromedp.Navigate(w.at("/")))
	v.says("#note", "Nothing here yet")
}

// TestOldEntry is played from where it stopped, with all that is known of it, though the cache does not have it any more.
func TestOldEntry(t *testing.T) {
	w := newWorld(t, func(c *allinone.Config) { c.Keep = 20 })
	var entries []entry
	for i := range 60 {
		entries = append(entries, entry{id: fmt.Sprint(i), position: time.Minute, age: time.Duration(i+1) * time.Minute})
	}
	w.report(entry{id: "old", title: "Fog", position: 4 * time.Minute, age: 30 * 24 * time.Hour, episode: 7})
	w.report(entries...)
	w.eventually("the cache has forgotten it", func() bool {
		w.report(entry{id: "new", position: time.Minute}) // which has the cache look at what it keeps
		var found struct{ Items []*record }
		w.ask(http.MethodPost, "/v1/history/lookup", []byte(`{"objects":[{"id":"old","type":1},{"id":"new","type":1}]}`), &found)
		return found.Items[0] == nil
	})
	v := w.open(w.signedIn("/"))
	v.until("(scrollTo(0, document.body.scrollHeight), document.querySelectorAll('#list .row').length === 62)")
	v.click("#list li:last-child .title")
	v.says("#resumed", "You stopped at 4:00")
	v.click("#play")
	v.seek(300)
	w.reaches("old", "playing", 300*time.Second)
	v.says("#safe", "5:0")
	v.do(chromedp.Navigate(w.at("/")))
	v.says("#list li:nth-child(1)", "Harbour Lights")
}

// lateNews is a browser that is so busy that it tells what an observer saw at first only together
// with what it saw next.
const lateNews = `
	const Observer = IntersectionObserver;
	window.IntersectionObserver = class extends Observer {
		constructor(tell, options) {
			super((seen, self) => tell([{ isIntersecting: false }, ...seen], self), options);
		}
	};`

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
	v.until("sessionStorage.getItem('playhead.undo.demo')?.includes('On Maps')")
	v.do(chromedp.Navigate(w.at("/docs"))) // who goes away has decided
	w.eventually("the third one is deleted", func() bool { return slices.Equal(w.ids(), []string{"plain.id"}) })
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

// TestDeletedCard takes what was deleted out of what to go on with, also while the page is told of nothing.
func TestDeletedCard(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.at("/docs"))
	v.expects("/v1/nowhere")
	v.beforePages(`const edge = window.fetch;
		window.WebSocket = class extends WebSocket {
			constructor(address, protocols) {
				address.pathname = '/v1/nowhere';
				super(address, protocols);
			}
		};
		window.fetch = async (address, request) => {
			const answer = await edge(address, request);
			if (String(address).endsWith('/v1/history/delete')) answer.json = () => Response.prototype.json.call(answer).finally(() => { window.deleted = true; });
			return answer;
		};`)
	v.do(chromedp.Navigate(w.signedIn("/")))
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

// TestSearchAll finds what the page has not loaded, and goes on to what is found below that.
func TestSearchAll(t *testing.T) {
	w := newWorld(t)
	var entries []entry
	for i := range 150 {
		e := entry{id: fmt.Sprint(i), title: fmt.Sprintf("Number %d", i), position: time.Minute, age: time.Duration(i) * time.Hour}
		if i >= 70 {
			e.title = fmt.Sprintf("Low Tide, part %d", i)
		}
		entries = append(entries, e)
	}
	w.report(entries...)
	v := w.open(w.signedIn("/"))
	v.until("document.querySelectorAll('#list .row').length >= 40")
	v.click("#search")
	v.press("tide LOW")
	v.says("#note", "40 entries found so far")
	v.click("#more")
	v.says("#note", "80 entries found")
	v.until("!document.querySelector('#more').checkVisibility() && document.querySelector('#list .title').textContent === 'Low Tide, part 70'")
	w.report(entry{id: "200", title: "Spring, low tide", position: time.Minute}, entry{id: "201", title: "Neap", position: time.Minute})
	v.until("document.querySelector('#list .title').textContent === 'Spring, low tide'")
	v.click("#search")
	v.press(kb.Escape)
	v.until("document.querySelector('#list .title').textContent === 'Neap'")
}

// TestSearchFarBack goes on with a search that has found nothing among the newest.
func TestSearchFarBack(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(`const edge = window.fetch;
	let asked = 0;
	window.fetch = (address, request) => (!String(address).includes('/v1/history/search') || asked++ > 0 ? edge(address, request)
		: Promise.resolve(Response.json({ items: [], cursor: '', has_more: true, searched: 10_000 })));`, w.signedIn("/"))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#search")
	v.press("maps")
	v.says("#note", "None of the 10,000 newest entries.")
	v.click("#more")
	v.lists("On Maps")
	v.says("#note", "1 entry found")
}

// openSeries opens the history page on the library and two parts of a series.
func openSeries(t *testing.T) (*world, *window) {
	t.Helper()
	w := newWorld(t)
	w.report(library...)
	w.report(
		entry{id: "h1", title: "Fog", typ: 2, position: length, age: 27 * time.Hour, episode: 1},
		entry{id: "h2", title: "The Pilot Boat", typ: 2, position: time.Minute, age: 90 * time.Second, episode: 2},
	)
	v := w.open(w.signedIn("/"))
	v.lists("Low Tide", "Harbour Lights", "Winter Roads", "On Maps", "plain.id")
	return w, v
}

// TestSeries puts the parts of a series together, and opens it.
func TestSeries(t *testing.T) {
	w, v := openSeries(t)
	v.says(".series", "1 of 2 completed")
	v.says(".series", "2 parts")
	v.click(".series .title")
	v.lists("Low Tide", "Harbour Lights", "The Pilot Boat", "Fog", "Winter Roads", "On Maps", "plain.id")
	v.says("#list li:nth-child(3)", "Season 1, episode 2")
	v.until("document.querySelector('.series .title').ariaExpanded === 'true'")
	v.press(kb.Delete) // is for the parts
	v.until("document.activeElement === document.querySelector('.series .title')")
	v.lists("Low Tide", "Harbour Lights", "The Pilot Boat", "Fog", "Winter Roads", "On Maps", "plain.id")
	w.report(entry{id: "h3", title: "Night Tide", typ: 2, position: time.Minute, episode: 3})
	v.lists("Harbour Lights", "Night Tide", "The Pilot Boat", "Fog", "Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click(".series .title")
	v.lists("Harbour Lights", "Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#group")
	v.lists("Night Tide", "Low Tide", "The Pilot Boat", "Winter Roads", "On Maps", "Fog", "plain.id")
	v.click("#group")
	w.report(entry{id: "p1", title: "Keepers", typ: 3, position: time.Minute, age: time.Second, episode: 1}, entry{id: "p2", title: "Lamps", typ: 3, position: time.Minute, episode: 2})
	v.lists("Harbour Lights", "Harbour Lights", "Low Tide", "Winter Roads", "On Maps", "plain.id") // a podcast of the same name
	v.click(".series .title")
	v.lists("Harbour Lights", "Lamps", "Keepers", "Harbour Lights", "Low Tide", "Winter Roads", "On Maps", "plain.id")
}

// TestSelect deletes several entries at once, a series as a whole, and takes that back.
func TestSelect(t *testing.T) {
	w, v := openSeries(t)
	v.until("!document.querySelector('#list .pick').checkVisibility()")
	v.click("#select")
	v.click(".series .pick")
	v.click("#list li:nth-child(4) .pick")
	v.says("#selected", "3 selected")
	v.click("#select-delete")
	v.lists("Low Tide", "Winter Roads", "plain.id")
	v.says("#toast", "Deleted 3 entries")
	v.until("!document.querySelector('#selection').checkVisibility()")
	v.click("#undo")
	v.lists("Low Tide", "Harbour Lights", "Winter Roads", "On Maps", "plain.id")
	v.click("#select")
	v.click("#select-all")
	v.says("#selected", "6 selected")
	v.press(kb.Escape)
	v.until("!document.querySelector('#selection').checkVisibility() && document.querySelectorAll('#list :checked').length === 0")
	v.click("#select")
	v.click("#list li:nth-child(1) .pick")
	v.click("#select-delete")
	v.lists("Harbour Lights", "Winter Roads", "On Maps", "plain.id")
	v.until("sessionStorage.getItem('playhead.undo.demo')?.includes('Low Tide')")
	v.do(chromedp.Navigate(w.at("/docs"))) // which does not wait for a second thought
	w.eventually("it is deleted", func() bool { return w.point("100") == nil })
}

// TestJumpToADay lists from the end of a day on.
func TestJumpToADay(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	jump := func(age time.Duration) {
		day := time.Now().Add(-age).Format(time.DateOnly)
		v.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{const d = document.querySelector('#date'); d.value = %q; d.dispatchEvent(new Event('change'))}", day)))
	}
	jump(24 * time.Hour)
	v.until("!document.querySelector('#list').textContent.includes('Low Tide')")
	v.until("document.querySelector('#list').textContent.includes('plain.id') && !document.querySelector('#continue').checkVisibility()")
	jump(80 * 24 * time.Hour)
	v.says("#note", "Nothing up to this day")
	v.click("#newest")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	jump(24 * time.Hour)
	v.until("!document.querySelector('#list').textContent.includes('Low Tide')")
	v.click("#search")
	v.press("tide") // over all days
	v.lists("Low Tide")
	v.click("#list .mark")
	v.click("#mark-dialog [value=watched]")
	v.says("#list", "Completed")
	v.lists("Low Tide")
	v.click("#search")
	v.press(kb.Escape)
	v.click("#newest")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	yesterday := time.Now().Add(-24 * time.Hour).Format("01022006") // as an American browser has it typed
	v.press(yesterday)
	v.until(fmt.Sprintf("document.querySelector('#date').value === %q", time.Now().Add(-24*time.Hour).Format(time.DateOnly)))
	v.until("!document.querySelector('#list').textContent.includes('Low Tide') && document.querySelector('#problem').hidden")
}

// TestUndoOverAReload takes back what was done just before the page was loaded again.
func TestUndoOverAReload(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.click("#list li:nth-child(2) .delete")
	v.until("sessionStorage.getItem('playhead.undo.demo')?.includes('Winter Roads')")
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
	v.click("#list li:nth-child(2) .delete")
	v.until("sessionStorage.getItem('playhead.undo.demo')?.includes('Winter Roads')")
	v.click("#list li:nth-child(1) .title")
	v.until("location.pathname === '/player' && !document.querySelector('#play').disabled")
	v.do(chromedp.Evaluate[chromedp.Void]("history.back()"))
	v.says("#toast", "Deleted “Winter Roads”")
	v.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#undo').click()"))
	v.lists("Winter Roads", "Low Tide", "On Maps", "plain.id")
}

// TestPictures are shown from the sites that the operator lists; of others, and of what cannot be loaded, the
// initial is shown.
func TestPictures(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tide.svg" || r.Header.Get("Referer") != "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = fmt.Fprint(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><path fill="#07a" d="M0 0h9v9H0z"/></svg>`)
	}))
	t.Cleanup(site.Close)
	w := newWorld(t, func(c *allinone.Config) { c.Images = []string{site.URL} })
	w.report(
		entry{id: "1", title: "Low Tide", position: time.Minute, age: time.Minute, image: site.URL + "/tide.svg"},
		entry{id: "2", title: "Gone", position: time.Minute, age: 2 * time.Minute, image: site.URL + "/gone.svg"},
		entry{id: "3", title: "Elsewhere", position: time.Minute, age: 3 * time.Minute, image: "https://elsewhere.example/a.svg"},
		entry{id: "4", title: "Not one", position: time.Minute, age: 4 * time.Minute, image: "javascript:alert(1)"},
	)
	v := w.open(w.at("/docs"))
	v.expects("404")
	v.others = strings.TrimPrefix(site.URL, "http://") + "/"
	v.do(chromedp.Navigate(w.signedIn("/")))
	v.lists("Low Tide", "Gone", "Elsewhere", "Not one")
	v.until("document.querySelector('#list li:nth-child(1) img').naturalWidth > 0")
	v.until("document.querySelector('#list li:nth-child(2) img.broken') && document.querySelector('#list li:nth-child(2) .tile').innerText === 'G'")
	v.until("document.querySelectorAll('#list img').length === 2 && document.querySelectorAll('#cards img').length === 2")
}

// TestGerman speaks the language of the browser.
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

// TestGermanErrors says what is wrong in the language of the page, also where the edge said it.
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

// TestGoBack: a user who has slipped to the end of something goes back to where an earlier session stopped.
func TestGoBack(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.click("#list li:nth-child(1) .mark")
	v.until("document.querySelector('#mark-dialog').open && document.querySelector('#viewings').hidden")
	v.press(kb.Escape)
	w.report(entry{id: "100", title: "Low Tide", position: 8 * time.Minute, age: time.Second, session: "a slip"})
	v.says("#list li:nth-child(1)", "8:00")
	v.click("#list li:nth-child(1) .mark")
	v.says("#viewings", "Go on at 4:00")
	v.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#viewings a').click()"))
	v.says("#title", "Low Tide")
	v.until("document.querySelector('#clip').currentTime === 240")
	v.do(chromedp.Reload()) // before anything was played there
	v.until("document.querySelector('#clip').currentTime === 240")
	v.click("#play")
	v.until("document.querySelector('#clip').currentTime > 241")
	v.do(chromedp.Reload()) // within what moves nothing otherwise
	v.says("#resumed", "You stopped at 4:0")
	v.click("#play")
	v.seek(300)
	w.reaches("100", "playing", 5*time.Minute)
	v.do(chromedp.Reload())
	v.says("#resumed", "You stopped at 5:0")
	v.until("(history.back(), true)")
	v.until("location.pathname === '/' && !document.querySelector('#mark-dialog').open")
}

// TestMark marks an entry in each way, by its button and by a key.
func TestMark(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.click("#list li:nth-child(3) .mark")
	v.says("#mark-dialog", "Mark “On Maps” as")
	v.until("document.activeElement.id === 'mark-no'")
	v.press(kb.Escape)
	v.until("!document.querySelector('#mark-dialog').open")
	v.click("#list li:nth-child(3) .mark")
	v.click("#mark-dialog [value=watched]")
	v.lists("On Maps", "Low Tide", "Winter Roads", "plain.id")
	v.says("#list li:nth-child(1)", "Completed")
	v.until("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === 'Low Tide|plain.id'")
	v.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#list li:nth-child(1) a').focus()"))
	v.press("M") // as with the caps lock
	v.click("#mark-dialog [value=unwatched]")
	v.says("#list li:nth-child(1)", "0:00 of 10:00")
	v.click("#list li:nth-child(2) .mark")
	v.click("#mark-dialog [value=reset]")
	v.lists("Low Tide", "On Maps", "Winter Roads", "plain.id")
	v.says("#list li:nth-child(1)", "0:00 of 10:00")
	v.until("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === 'plain.id'")
}

func TestClear(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/"))
	v.click("#clear")
	v.says("#clear-dialog", "the whole history")
	v.until("document.activeElement.id === 'clear-no'")
	v.press(kb.Escape)
	v.until("!document.querySelector('#clear-dialog').open")
	v.only("2")
	v.lists("Winter Roads")
	v.click("#clear")
	v.says("#clear-dialog", "type Episode")
	v.click("#clear-yes")
	v.says("#note", "Nothing of this type yet")
	v.only("")
	v.lists("Low Tide", "On Maps", "plain.id")
	v.click("#clear")
	v.click("#clear-yes")
	v.says("#note", "Nothing here yet")
	v.until("!document.querySelector('#continue').checkVisibility()")
	if ids := w.ids(); len(ids) != 0 {
		t.Errorf("left: %v", ids)
	}
}

// TestHostileTitles are shown and never run.
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

// TestOddMetadata is of entries without a title to be seen, with numbers that are none, and with names that are too long.
func TestOddMetadata(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("Y", 300)
	var beats []string
	for i, meta := range []string{
		`{"title":" \u00a0 "}`, `{"title":"One","series":"A","season":"NaN","episode":"Infinity"}`, `{"title":"Two","series":"A","season":"1e3","episode":"2"}`,
		`{"title":"Three","series":"` + long + `","season":"2","episode":"3"}`,
	} {
		at := time.Now().Add(-time.Duration(i+1) * time.Minute).UTC().Format(time.RFC3339Nano)
		beats = append(beats, fmt.Sprintf(`{"object":{"id":"odd%d","type":2},"kind":"stop","position_ms":300000,"duration_ms":600000,"event_time":%q,"meta":%s}`, i, at, meta))
	}
	w.ask("POST", "/v1/heartbeats", []byte(`{"heartbeats":[`+strings.Join(beats, ",")+`]}`), new(any))
	v := w.open(w.signedIn("/"))
	v.lists("odd0", "A", "Three")
	v.click(".series .title")
	v.lists("odd0", "A", "One", "Two", "Three")
	v.until("[...document.querySelectorAll('#list .within .about')].map((e) => e.innerText).join('|') === '|Episode 2'")
	v.until("[...document.querySelectorAll('#list .row, #cards li')].every((e) => e.clientHeight < 250) && document.querySelectorAll('#cards li').length === 3")
	v.click("#list .title")
	v.says("#title", "odd0")
}

// TestErrorsAreNoEmptyHistory says what is wrong, and tries again.
func TestErrorsAreNoEmptyHistory(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.live()
	v.expects("ERR_CONNECTION_REFUSED")
	w.stop()
	v.says("#connection", "Reconnecting")
	v.only("1")
	v.says("#problem", "The history could not be read: no connection")
	if note := v.text("#note"); note != "" {
		t.Errorf("it says %q besides", note)
	}
	w.start()
	v.clickIfVisible("#again") // or the page was quicker, because it is connected again
	v.lists("Low Tide", "plain.id")
	v.until("!document.querySelector('#problem').checkVisibility()")
}

// clickIfVisible clicks at something that may be gone.
// TestNoPushes says so where something keeps WebSockets out, and reads again by itself what nobody tells.
func TestNoPushes(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "100", title: "Low Tide", position: 4 * time.Minute, age: time.Hour})
	v := w.openAfter("globalThis.WebSocket = function () { throw new Error('no') }", w.signedIn("/"))
	v.lists("Low Tide")
	v.says("#connection", "No live updates")
	w.report(entry{id: "200", title: "Winter Roads", position: 4 * time.Minute})
	v.lists("Winter Roads", "Low Tide")
}

func (v *window) clickIfVisible(selector string) {
	v.Helper()
	v.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		"{const e = document.querySelector(%q); if (e?.checkVisibility()) e.click()}", selector)))
}

// only filters by a type, "" for none.
func (v *window) only(typ string) {
	v.Helper()
	v.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		"{const s = document.querySelector('#type'); s.value = %q; s.dispatchEvent(new Event('change'))}", typ)))
}

// A history that was cleared comes back from the file that the page saved, and the page says
// what became of it.
func TestBackup(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	dir := t.TempDir()
	v.downloads(dir)
	v.click("#backup")
	v.click("#backup-save")
	v.says("#backup-result", "among your downloads")
	var files []string
	w.eventually("the backup is saved", func() bool {
		files, _ = filepath.Glob(filepath.Join(dir, "history-*.ndjson"))
		return len(files) == 1
	})
	v.until("document.querySelector('#backup-go').disabled")
	v.click("#backup-close")
	v.click("#clear")
	v.says("#clear-dialog", "Only a backup brings it back")
	v.click("#clear-yes")
	v.says("#note", "Nothing here yet")
	v.click("#backup")
	v.chooses("#backup-file", files[0])
	v.click("#backup-go")
	v.says("#backup-result", "4 entries were deleted or cleared since, and stay so. Tick the box")
	v.click("#backup-restore")
	v.click("#backup-go")
	v.says("#backup-result", "4 entries were taken in.")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#backup-go")
	v.says("#backup-result", "4 entries were here already.")
	v.click("#backup-close")
	v.click("#list li:nth-child(1) .delete")
	v.click("#backup")
	v.click("#backup-go") // while the delete waits
	v.says("#backup-result", "1 entry was taken in. 3 entries were here already.")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	broken := filepath.Join(dir, "broken.ndjson")
	if err := os.WriteFile(broken, []byte("{\"version\":9}\nnothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	v.chooses("#backup-file", broken)
	v.click("#backup-go")
	v.says("#backup-result", "2 entries could not be read: line 1 (version: want 1")
	v.press(kb.Escape)
	v.says("#list li:nth-child(1)", "4:00 of 10:00")
	v.says("#list li:nth-child(1)", "Restored")
	v.says("#list li:nth-child(2)", "Completed")
	v.click("#list li:nth-child(1) .title")
	v.until("/You stopped at 4:00, \\d+ minutes? ago/.test(document.querySelector('#resumed').innerText)") // and not just now, when it came back
}

// failing has the requests to a path find no edge as long as window.failing is true.
const failing = `const edge = window.fetch;
	window.failing = true;
	window.fetch = (address, request) => (window.failing && String(address).includes(%q) ? Promise.reject(new TypeError('failing')) : edge(address, request));`

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

// TestDeletedElsewhere says of no entry that it could not be deleted once another device has done so.
func TestDeletedElsewhere(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(fmt.Sprintf(failing, "/v1/history/delete"), w.signedIn("/"))
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
