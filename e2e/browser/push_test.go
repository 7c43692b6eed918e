//go:build browser

package browser_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestTwoWindows plays in one window and watches in the other, both ways.
func TestTwoWindows(t *testing.T) {
	w := newWorld(t)
	w.report(library[1:]...)
	history := w.open(w.signedIn("/"))
	history.live()
	history.lists("Winter Roads", "On Maps", "plain.id")
	player := history.beside(w, w.signedIn(clip))
	player.live()
	player.click("#play")
	history.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	player.seek(300)
	history.says("#list li:nth-child(1)", "5:0")
	history.says("#cards", "Low Tide")
	player.click("#play")
	history.says("#list li:nth-child(1)", "just now")
	third := history.beside(w, w.signedIn("/"))
	third.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	third.live()
	history.click("#list li:nth-child(2) .delete")
	third.lists("Low Tide", "On Maps", "plain.id") // after the undo time
	third.click("#clear")
	third.click("#clear-yes")
	history.says("#empty", "Nothing here yet")
}

// TestTwoPlayers shows each player the other's position.
func TestTwoPlayers(t *testing.T) {
	w := newWorld(t)
	first := w.open(w.signedIn(clip))
	second := first.beside(w, w.signedIn(clip))
	first.live()
	second.live()
	first.click("#play")
	first.seek(200)
	second.says("#elsewhere", "is playing this at 3:2")
	second.click("#follow")
	second.until("document.querySelector('#clip').currentTime >= 200")
	second.click("#play")
	first.says("#elsewhere", "is playing this at 3:2")
}

// TestOneNotice notifies a device once that continues another's viewing, even after a resync.
func TestOneNotice(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "100", title: "Low Tide", position: 4 * time.Minute, age: time.Minute})
	v := w.open(w.signedIn(clip))
	v.live()
	v.says("#resumed", "You stopped at 4:00")
	v.expects("ERR_CONNECTION_REFUSED")
	w.stop()
	v.says("#connection", "Reconnecting")
	v.do(chromedp.Evaluate[chromedp.Void](`{
		const ask = fetch;
		window.asked = 0;
		window.notices = '';
		fetch = async (...a) => {
			const answer = await ask(...a);
			if (String(a[0]).includes('/v1/history/lookup')) answer.clone().text().then(() => window.asked++);
			return answer;
		};
		new MutationObserver(() => (window.notices += document.querySelector('#elsewhere-text').textContent))
			.observe(document.querySelector('#elsewhere'), { subtree: true, childList: true, characterData: true });
	}`))
	w.start()
	v.live()
	v.until("window.asked > 0")
	v.until("document.querySelector('#resumed').checkVisibility()")
	w.report(entry{id: "100", title: "Low Tide", position: 5 * time.Minute})
	v.says("#elsewhere", "Living room left this at 5:00")
	v.until("!document.querySelector('#resumed').checkVisibility()")
	v.until("!window.notices.includes('4:00')")
}

// glances reports a device in its first seconds, which keeps the resume point.
func (w *world) glances(kind string) {
	w.Helper()
	now := time.Now().UTC()
	body := fmt.Appendf(nil, `{"heartbeats":[{"object":{"id":"100","type":1},"kind":%q,"device":"Kitchen","session":"glance","position_ms":2000,"duration_ms":600000,"started_at":%q,"event_time":%q}]}`,
		kind, now.Add(-2*time.Second).Format(time.RFC3339Nano), now.Format(time.RFC3339Nano))
	w.ask(http.MethodPost, "/v1/heartbeats", body, &struct{}{})
}

// TestBegunElsewhere does not attribute the user's old position to a device in its first seconds.
func TestBegunElsewhere(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "100", title: "Low Tide", position: 5 * time.Minute, age: time.Hour})
	v := w.open(w.signedIn(clip))
	v.live()
	w.glances("progress")
	v.says("#elsewhere", "Kitchen is playing this.")
	v.until("!document.querySelector('#follow').checkVisibility()")
	w.glances("stop")
	v.until("!document.querySelector('#elsewhere').checkVisibility()")
	w.report(entry{id: "100", title: "Low Tide", position: 6 * time.Minute})
	v.says("#elsewhere", "Living room left this at 6:00.")
	v.until("document.querySelector('#follow').checkVisibility()")
	v.do(chromedp.Navigate(w.signedIn(clip)))
	v.says("#resumed", "You stopped at 6:00")
}

// TestBegunElsewhereWhileAway asks about the user's own position, not about a device in its first seconds.
func TestBegunElsewhereWhileAway(t *testing.T) {
	w := newWorld(t)
	v := w.playing()
	v.until("document.querySelector('#watched').textContent >= '0:11'")
	w.reaches("100", "playing", 100*time.Second)
	v.deaf()
	w.report(entry{id: "100", title: "Low Tide", position: 8 * time.Minute})
	w.glances("stop")
	v.click("#play")
	v.hears()
	v.says("#conflict", "This was left at 8:00 elsewhere.")
}

// TestMarkedElsewhere names no device after a mark.
func TestMarkedElsewhere(t *testing.T) {
	w := newWorld(t)
	v := w.paused()
	w.ask(http.MethodPost, "/v1/history/mark", []byte(`{"objects":[{"id":"100","type":1}],"mark":"reset"}`), &struct{}{})
	v.says("#elsewhere", "This was left at 0:00 elsewhere.")
}

// TestFollowBeyondTheClip follows another device past the end of this player's first clip.
func TestFollowBeyondTheClip(t *testing.T) {
	const film = 2 * time.Hour
	w := newWorld(t)
	v := w.playing()
	w.reaches("100", "playing", 100*time.Second)
	v.until("document.querySelector('#waiting').textContent === '0'")
	w.report(entry{id: "100", title: "Low Tide", position: 90 * time.Minute, length: film})
	v.says("#elsewhere", "Living room left this at 1:30:00.")
	v.click("#follow")
	v.until("document.querySelector('#clip').currentTime >= 5400")
	w.reaches("100", "playing", 90*time.Minute)
	if r := w.point("100"); r.DurationMS != film.Milliseconds() || r.Completed {
		t.Errorf("it is of %d ms, completed: %v", r.DurationMS, r.Completed)
	}
}

// TestFollowThenPlay continues from the other device's position without another question.
func TestFollowThenPlay(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "100", title: "Low Tide", position: 2 * time.Minute, age: time.Hour, length: 2 * time.Hour})
	v := w.open(w.signedIn(clip))
	v.says("#resumed", "You stopped at 2:00")
	v.live()
	w.report(entry{id: "100", title: "Low Tide", position: 90 * time.Minute, length: 2 * time.Hour})
	v.says("#elsewhere", "Living room left this at 1:30:00.")
	v.click("#follow")
	v.click("#play")
	w.reaches("100", "playing", 90*time.Minute)
	v.until("!document.querySelector('#conflict').checkVisibility() && document.querySelector('#clip').currentTime > 5401")
}

// TestUnknownLength plays an object of unknown length: the end of the clip is not the object's end.
func TestUnknownLength(t *testing.T) {
	w := newWorld(t)
	w.report(entry{id: "100", title: "Low Tide", position: 20 * time.Minute, age: time.Hour, length: -1})
	v := w.open(w.signedIn(clip))
	v.says("#resumed", "You stopped at 20:00")
	v.live()
	v.click("#play")
	v.seek(1795)
	w.reaches("100", "stopped", 1795*time.Second) // at the end of the clip
	if r := w.point("100"); r.DurationMS != 0 || r.Completed {
		t.Errorf("it is of %d ms, completed: %v", r.DurationMS, r.Completed)
	}
}

// TestCompletedElsewhere does not seek to the end of an object that another device has completed: it would count
// as another play.
func TestCompletedElsewhere(t *testing.T) {
	w := newWorld(t)
	v := w.paused()
	w.report(entry{id: "100", title: "Low Tide", position: length})
	v.says("#elsewhere", "This was completed elsewhere.")
	v.until("!document.querySelector('#follow').checkVisibility()")
	w.report(entry{id: "100", title: "Low Tide", position: 5 * time.Minute})
	v.says("#elsewhere", "Living room left this at 5:00.")
	v.until("document.querySelector('#follow').checkVisibility()")
	v.deaf()
	w.report(entry{id: "100", title: "Low Tide", position: length})
	v.hears()
	v.click("#play")
	v.says("#conflict", "This was completed elsewhere, just now.")
	v.until("!document.querySelector('#jump').checkVisibility()")
	v.click("#stay")
	w.reaches("100", "playing", 100*time.Second)
}
