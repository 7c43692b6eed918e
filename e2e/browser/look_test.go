//go:build browser

package browser_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestKeyboard does everything by the keyboard, with a visible focus.
func TestKeyboard(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	stops := v.walk("#list li:nth-child(2) .delete")
	for _, want := range []string{"skip", "brand", "search", "type", "clear", "title", "delete"} {
		if !slices.ContainsFunc(stops, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("the walk missed %q: %v", want, stops)
		}
	}
	for _, stop := range stops {
		if !strings.HasSuffix(stop, " visible") {
			t.Errorf("the focus cannot be seen on %s", stop)
		}
	}
	v.press(kb.ArrowUp)
	v.until("document.activeElement.textContent === 'Low Tide'")
	v.press(kb.Delete)
	v.lists("Winter Roads", "On Maps", "plain.id")
	v.until("document.activeElement.textContent === 'Winter Roads'")
	v.walk("#undo")
	v.press(kb.Enter)
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.until("document.activeElement.textContent === 'Low Tide'")
	v.press(kb.Delete)
	v.says("#toast", "Deleted “Low Tide”")
	v.do(chromedp.KeyEvent("z", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.until("document.activeElement.textContent === 'Low Tide'")
	v.walk("#cards li:nth-child(2) .dismiss")
	v.press(kb.Enter)
	v.says("#toast", "“On Maps” removed")
	v.walk("#undo")
	v.press(kb.Enter)
	v.until("document.activeElement.matches('#cards li:nth-child(2) a')")
	v.press("/")
	v.until("document.activeElement.id === 'search'")
	v.press(kb.Escape) // browsers under test also type a handled key
	v.walk("#list li:nth-child(1) .title")
	v.press(kb.Enter)
	v.until("location.pathname === '/player' && !document.querySelector('#play').disabled")
	v.walk("#play")
	v.press(" ")
	v.until("!document.querySelector('#clip').paused")
}

// walk presses Tab until the focus is on an element, and returns the path.
func (v *window) walk(selector string) (stops []string) {
	v.Helper()
	for range 60 {
		v.press(kb.Tab)
		stop, err := value[string](v, "{const a = document.activeElement; const s = getComputedStyle(a);"+
			"`${a.id} ${a.className} ${s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 ? 'visible' : 'unseen'}`}")
		if err != nil {
			v.Fatal(err)
		}
		stops = append(stops, stop)
		there, err := value[bool](v, fmt.Sprintf("document.activeElement.matches(%q)", selector))
		if err != nil {
			v.Fatal(err)
		}
		if there {
			return stops
		}
	}
	v.Fatalf("Tab does not come to %s: %v", selector, stops)
	return nil
}

// TestNames checks the accessibility tree.
func TestNames(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	v.says("#cards", "Low Tide") // loaded concurrently with the list, like the switch
	v.until("document.querySelector('#recording').checkVisibility()")
	v.live()
	v.hasNames(
		"searchbox Search in the history", "combobox Type", "button Clear…", "switch Recording", "link Low Tide", "button Delete Low Tide",
		"progressbar Progress of Low Tide", "heading History", "heading Continue watching", "navigation Pages", "region Continue watching",
	)
	v.do(chromedp.Navigate(w.at(clip)))
	v.until("!document.querySelector('#play').disabled")
	v.hasNames(
		"heading Low Tide", "slider Position", "button Play", "button Back 10 seconds", "button Ahead 10 seconds", "combobox Speed", "checkbox Mute",
		"image The time of the clip, drawn large",
	)
	v.click("#play") // screen readers must not announce changes every second
	v.until("document.querySelector('#clip').currentTime > 241 && document.querySelector('#at').closest('output, [role=status], [role=alert], [aria-live]') === null")
	v.until("/^4 minutes \\d+ seconds? of 10 minutes$/.test(document.querySelector('#position').getAttribute('aria-valuetext'))")
}

// hasNames wants these roles and names, and no control without a name.
func (v *window) hasNames(want ...string) {
	v.Helper()
	tree, err := chromedp.Call(v.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		v.Fatal(err)
	}
	var names []string
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil || node.Name == nil {
			continue
		}
		role, name := text(node.Role), text(node.Name)
		names = append(names, role+" "+name)
		control := slices.Contains([]string{"button", "link", "searchbox", "combobox", "slider", "checkbox", "switch", "progressbar", "textbox"}, role)
		if control && name == "" {
			v.Errorf("a %s has no name", role)
		}
	}
	for _, name := range want {
		if !slices.Contains(names, name) {
			v.Errorf("no %q among %q", name, names)
		}
	}
}

func text(value *accessibility.Value) (s string) {
	_ = json.Unmarshal(value.Value, &s) // other values do not matter
	return s
}

// TestForcedColors shows active states even if the system sets all colors.
func TestForcedColors(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}, {Name: "prefers-color-scheme", Value: "dark"}}}
	if _, err := chromedp.Call(v.ctx, emulation.SetEmulatedMedia, media); err != nil {
		t.Fatal(err)
	}
	v.until("matchMedia('(forced-colors: active)').matches")
	look := func(act string) string {
		t.Helper()
		v.do(chromedp.Evaluate[chromedp.Void](act))
		picture, err := chromedp.Run(v.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		return string(picture)
	}
	on, off := look("document.activeElement.blur()"), look("document.querySelector('#group').setAttribute('aria-checked', 'false')")
	if on == off {
		t.Error("a switch that is on looks like one that is off")
	}
	v.until(`['nav a[aria-current]', '.card', '#toast'].every((name) => getComputedStyle(document.querySelector(name)).borderTopStyle === 'solid')`)
}

// contrast returns a text's contrast with the page (WCAG 2, section 1.4.3).
const contrast = `{
	const light = (color) => {
		const [r, g, b] = color.match(/[\d.]+/g).map(Number).map((n) => n / 255).map((n) => n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
	};
	const pair = [light(getComputedStyle(document.querySelector(%q)).color), light(getComputedStyle(document.body).backgroundColor)];
	Math.max(...pair) / Math.min(...pair);
}`

// TestNarrow fits both pages into the width of a small phone.
func TestNarrow(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	w.report(entry{id: "long", title: strings.Repeat("Donaudampfschifffahrt", 12), position: length, age: 0})
	v := w.open(w.signedIn("/"))
	screen := emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 740, DeviceScaleFactor: 2, Mobile: true}
	if _, err := chromedp.Call(v.ctx, emulation.SetDeviceMetricsOverride, screen); err != nil {
		t.Fatal(err)
	}
	v.until("document.querySelectorAll('#list .row').length === 5 && innerWidth === 360")
	v.until("document.documentElement.scrollWidth <= 360")
	v.click("#list li:nth-child(1) .delete")
	v.says("#toast", "Deleted")
	v.until("document.documentElement.scrollWidth <= 360 && document.querySelector('#undo').getBoundingClientRect().right <= 360")
	v.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#toast-text').textContent = '„Low Water“ gelöscht.'; document.querySelector('#undo').textContent = 'Rückgängig'")) // as in German, in one line
	if height, err := value[float64](v, "document.querySelector('#undo').offsetHeight"); err != nil || height > 45 {                                                                  // now: the message ends by itself
		t.Errorf("the button is %.0f pixels high, %v", height, err)
	}
	v.click("#undo")
	v.do(chromedp.Navigate(w.at("/player?id=long&title=" + strings.Repeat("Donaudampfschifffahrt", 12))))
	v.until("!document.querySelector('#play').disabled")
	v.until("document.documentElement.scrollWidth <= 360")
}

// TestNothingOverTheFocus walks through more entries than a phone shows. No sticky element may cover the focused
// entry or another sticky element.
func TestNothingOverTheFocus(t *testing.T) {
	w := newWorld(t)
	for i := range 30 {
		w.report(entry{id: fmt.Sprint(i), title: fmt.Sprintf("Entry %d", i), position: length / 2, age: time.Duration(i) * time.Minute})
	}
	v := w.open(w.signedIn("/"))
	screen := emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 740, DeviceScaleFactor: 2, Mobile: true}
	if _, err := chromedp.Call(v.ctx, emulation.SetDeviceMetricsOverride, screen); err != nil {
		t.Fatal(err)
	}
	v.until("document.querySelectorAll('#list .row').length === 30 && innerWidth === 360")
	v.click("#select")
	v.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#list .title').focus()"))
	v.press(kb.Delete)
	v.says("#toast", "Deleted “Entry 0”")
	const apart = `document.querySelector('#toast').getBoundingClientRect().bottom <= document.querySelector('#selection').getBoundingClientRect().top`
	v.until(apart)
	const seen = `((a, r) => [r.top + 1, r.bottom - 1].every((y) => a.contains(document.elementFromPoint(r.left + 5, y))))(
		document.activeElement, document.activeElement.getBoundingClientRect())`
	for _, key := range []string{kb.ArrowDown, kb.ArrowUp} {
		for i := range 28 {
			v.press(key)
			v.until(fmt.Sprintf("document.activeElement.textContent === 'Entry %d'", map[string]int{kb.ArrowDown: i + 2, kb.ArrowUp: 28 - i}[key]))
			v.until(seen)
		}
	}
}

// TestCardsByKeyboard scrolls each card fully into view when it gets the focus on a phone.
func TestCardsByKeyboard(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/"))
	screen := emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 740, DeviceScaleFactor: 2, Mobile: true}
	if _, err := chromedp.Call(v.ctx, emulation.SetDeviceMetricsOverride, screen); err != nil {
		t.Fatal(err)
	}
	v.until("innerWidth === 360 && document.querySelectorAll('#cards .card').length === 3 && (document.querySelector('#cards .card').focus(), true)")
	for n := range 3 {
		v.until(fmt.Sprintf("document.activeElement === document.querySelectorAll('#cards .card')[%d]", n))
		v.until("document.activeElement.getBoundingClientRect().left >= 0 && document.activeElement.getBoundingClientRect().right <= 360")
		v.press("\t") // to its button
		v.press("\t")
	}
}

// TestExpired closes open dialogs and shows the sign-in form once the token is refused.
func TestExpired(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.at("/docs"))
	v.expects("401")
	v.beforePages(`const ask = window.fetch;
		window.fetch = (address, request) => ask(address, window.expired ? { ...request, headers: { Authorization: 'Bearer a.b.c' } } : request);`)
	v.do(chromedp.Navigate(w.signedIn("/")))
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.click("#list .mark")
	v.until("document.querySelector('#mark-dialog').open && (window.expired = true, document.querySelector('#recording').click(), true)")
	v.until("document.querySelector('#sign-in').checkVisibility() && !document.querySelector('dialog[open]') && document.activeElement.id === 'token'")
}

// TestScriptMissing reports a failed script in the user's language, and reloads the page.
func TestScriptMissing(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.at("/docs"))
	v.expects("ERR_BLOCKED_BY_CLIENT")
	v.beforePages("Object.defineProperty(navigator, 'languages', { value: ['de'] })")
	v.blocked("/assets/*/dom.js")
	for _, page := range []string{"/", clip} {
		v.do(chromedp.Navigate(w.signedIn(page)))
		v.says("#problem", "Die Seite konnte nicht ganz geladen werden.")
		v.until("!document.querySelector('#connection').textContent.includes('Verbinde')")
	}
	v.do(chromedp.Navigate(w.signedIn("/flow"))) // only in English
	v.says("#problem", "The page could not be loaded as a whole.")
	v.do(chromedp.Navigate(w.signedIn("/")))
	v.says("#problem", "Die Seite konnte nicht ganz geladen werden.")
	v.blocked()
	v.click("#again")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
}
