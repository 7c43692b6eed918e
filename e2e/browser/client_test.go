//go:build browser

package browser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestDay sends back what the edge said of the day, so that it need not look again.
func TestDay(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.signedIn(clip))
	v.live()
	v.click("#play")
	v.seek(100)
	v.click("#play")
	w.reaches("100", "paused", 100*time.Second)
	v.until("document.querySelector('#waiting').textContent === '0'")
	v.mu.Lock()
	defer v.mu.Unlock()
	first, last := v.said[0], v.said[len(v.said)-1]
	if !strings.Contains(first, `"time_zone":"`) || strings.Contains(first, "first_flag") {
		t.Errorf("the first message is %s", first)
	}
	if !strings.Contains(last, `"first_flag":"20`) {
		t.Errorf("the last message is %s", last)
	}
}

// TestSleep reads again what is shown, and asks whether the connection lives.
func TestSleep(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/"))
	v.live()
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	const reads = "performance.getEntriesByType('resource').filter((r) => r.name.includes('/v1/history')).length"
	before, err := value[int](v, reads)
	if err != nil {
		t.Fatal(err)
	}
	v.do(chromedp.Evaluate[chromedp.Void](
		"{const now = Date.now; Date.now = () => now() + 1e6; document.dispatchEvent(new Event('visibilitychange'))}"))
	v.until(fmt.Sprintf("%s > %d", reads, before))
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.said) != 1 || !strings.Contains(v.said[0], `"heartbeats":[]`) {
		t.Errorf("it said %q", v.said)
	}
}

// TestTokens are asked for each connection, from whoever makes them.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.at("/"))
	for tokens, want := range map[string]string{
		fmt.Sprintf("[() => Promise.reject('away'), () => %q]", w.token): "close no token, open",
		fmt.Sprintf("[() => 'with a space', () => %q]", w.token):         "unauthorized",
	} {
		script := fmt.Sprintf(`(async (tokens) => {
			const { Playhead } = await import('/assets/playhead.js');
			const client = new Playhead({ token: () => tokens.shift()(), minWait: 10 });
			return new Promise((resolve) => {
				const seen = [];
				client.addEventListener('close', ({ detail }) => seen.push('close ' + detail.reason));
				for (const end of ['open', 'unauthorized']) client.addEventListener(end, () => resolve(seen.concat(end).join(', ')));
				client.connect();
			});
		})(%s)`, tokens)
		if got, err := value[string](v, script); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", tokens, got, err, want)
		}
	}
}

// TestOutbox is bounded, gives up first what is superfluous, and is there after a reload.
func TestOutbox(t *testing.T) {
	w := newWorld(t)
	v := w.open(w.at("/"))
	for reports, want := range map[string]string{
		"3, [['start', 0], ['progress', 5], ['progress', 10], ['progress', 15]]": "start:0 progress:10 progress:15 0",
		"3, [['start', 0], ['progress', 50], ['seek', 10], ['progress', 15]]":    "progress:50 seek:10 progress:15 1",
		"2, [['pause', 1], ['stop', 2], ['start', 3]]":                           "stop:2 start:3 1",
	} {
		if got, err := value[string](v, outbox+"("+reports+")"); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", reports, got, err, want)
		}
	}
}

// outbox puts reports into one of a size, and says what is left after a reload, and how many
// of them were lost.
const outbox = `(async (limit, reports) => {
	const { Outbox } = await import('/assets/outbox.js');
	const kept = new Map();
	const storage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text) };
	const box = new Outbox(limit, storage, 'k');
	for (const [kind, position_ms] of reports) box.push({ object: { id: '1', type: 1 }, session: 's', kind, position_ms });
	const left = new Outbox(limit, storage, 'k').head(100);
	return left.map((beat) => beat.kind + ':' + beat.position_ms).concat(String(box.dropped)).join(' ');
})`
