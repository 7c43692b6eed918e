//go:build browser

package browser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

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
	v.press(kb.Escape) // browsers under test also type a handled key
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

// TestSearchLetters searches regardless of case and accents, with as long a text as the box takes.
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

// rightToLeft waits until an element shows "שלום!" with the mark at its end, on the left.
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

// TestSearchAll finds entries that the page has not loaded, and loads more results on demand.
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

// TestSearchFarBack continues a search without results among the newest entries.
func TestSearchFarBack(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.openAfter(`const edge = window.fetch;
	window.far = true;
	window.fetch = (address, request) => (!String(address).includes('/v1/history/search') || !window.far ? edge(address, request)
		: Promise.resolve(Response.json({ items: [], cursor: '', has_more: true, searched: 10_000 })));`, w.signedIn("/"))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#search")
	v.press("maps")
	v.says("#note", "None of the 10,000 newest entries.")
	v.until("!(window.far = false)")
	v.clickIfVisible("#more") // unless a resync was quicker
	v.lists("On Maps")
	v.says("#note", "1 entry found")
}
