//go:build browser

package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

func (w *world) openLibrary() *window {
	w.Helper()
	w.report(library...)
	v := w.open(w.signedIn("/"))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	return v
}

// TestNextPart shows the next part of a series, even without a record of it.
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

// TestGoOnFollows orders Continue Watching by other devices' plays, and drops finished entries.
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

// TestLongHistory loads more as the user scrolls.
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

// TestManyEntries shows, selects and deletes many entries within a low rate limit. The page must do once-only
// work once, not per entry.
func TestManyEntries(t *testing.T) {
	const many = 300
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
	v.says("#selected", "301 selected")
	v.click("#select-delete")
	v.says("#toast", "Deleted 301 entries")
	v.until("document.querySelectorAll('#list .row').length === 0 && window.deletes === 1")
	if n, err := value[int](v, "window.problems"); n != 0 || err != nil {
		t.Errorf("the page had %d problems, %v", n, err)
	}
	v.do(chromedp.Navigate(w.at("/docs")), chromedp.Navigate(w.at("/")))
	v.says("#empty", "Nothing here yet")
}

// TestOldEntry plays an entry that the cache has dropped from its resume point, with all its metadata.
func TestOldEntry(t *testing.T) {
	w := newWorld(t, func(c *allinone.Config) { c.Keep = 20 })
	var entries []entry
	for i := range 60 {
		entries = append(entries, entry{id: fmt.Sprint(i), position: time.Minute, age: time.Duration(i+1) * time.Minute})
	}
	w.report(entry{id: "old", title: "Fog", position: 4 * time.Minute, age: 30 * 24 * time.Hour, episode: 7})
	w.report(entries...)
	for range 48 { // every sixteenth put trims the cache
		w.report(entry{id: "new", position: time.Minute})
	}
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

// lateNews simulates a busy browser: it reports an observer's first entry only together with the next.
const lateNews = `
	const Observer = IntersectionObserver;
	window.IntersectionObserver = class extends Observer {
		constructor(tell, options) {
			super((seen, self) => tell([{ isIntersecting: false }, ...seen], self), options);
		}
	};`

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

// TestSeries groups the parts of a series, and opens the group.
func TestSeries(t *testing.T) {
	w, v := openSeries(t)
	v.says(".series", "1 of 2 completed")
	v.says(".series", "2 parts")
	v.click(".series .title")
	v.lists("Low Tide", "Harbour Lights", "The Pilot Boat", "Fog", "Winter Roads", "On Maps", "plain.id")
	v.says("#list li:nth-child(3)", "Season 1, episode 2")
	v.until("document.querySelector('.series .title').ariaExpanded === 'true'")
	v.press(kb.Delete) // applies to the parts
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

// TestSelect deletes several entries at once, a series as a whole, and undoes that.
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
	v.do(chromedp.Navigate(w.at("/docs"))) // leaving ends the undo time
	w.eventually("it is deleted", func() bool { return w.point("100") == nil })
}

// TestJumpToADay lists from the end of a day.
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
	yesterday := time.Now().Add(-24 * time.Hour).Format("01022006") // the input format of an American browser
	v.press(yesterday)
	v.until(fmt.Sprintf("document.querySelector('#date').value === %q", time.Now().Add(-24*time.Hour).Format(time.DateOnly)))
	v.until("!document.querySelector('#list').textContent.includes('Low Tide') && document.querySelector('#problem').hidden")
}

// TestPictures shows pictures from the operator's listed sites. For other sites and failed pictures it shows the
// initial.
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

// TestGoBack returns to an earlier session's position after the user skipped to the end.
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
	v.do(chromedp.Reload()) // within the grace period
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
	v.press("M") // as with caps lock
	v.click("#mark-dialog [value=unwatched]")
	v.says("#list li:nth-child(1)", "0:00 of 10:00")
	v.click("#list li:nth-child(2) .mark")
	v.click("#mark-dialog [value=reset]")
	v.lists("Low Tide", "On Maps", "Winter Roads", "plain.id")
	v.says("#list li:nth-child(1)", "0:00 of 10:00")
	v.says("#toast", "Marked “Low Tide”")
	v.click("#undo")
	v.says("#list li:nth-child(2)", "4:00 of 10:00")
	v.click("#list li:nth-child(2) .mark")
	v.click("#mark-dialog [value=reset]")
	w.eventually("it is marked", func() bool { return w.point("100").ResumeMS == 0 })
	v.until("[...document.querySelectorAll('#cards .title')].map((a) => a.textContent).join('|') === 'plain.id'")
}

// TestErrorsAreNoEmptyHistory shows the error, and retries.
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
	v.clickIfVisible("#again") // unless the page has already reconnected
	v.lists("Low Tide", "plain.id")
	v.until("!document.querySelector('#problem').checkVisibility()")
}

// TestNoPushes reports blocked WebSockets, and polls instead.
func TestNoPushes(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "100", title: "Low Tide", position: 4 * time.Minute, age: time.Hour})
	v := w.openAfter(`globalThis.WebSocket = function () { throw new Error('no') };
		const often = setInterval;
		globalThis.setInterval = (act, ms) => often(act, ms / 20);`, w.signedIn("/"))
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
