//go:build browser

package browser_test

import (
	"bytes"
	"fmt"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// watch reports viewings of half an hour that ended at noon, some days ago.
func (w *world) watch(id, title string, days ...int) {
	w.Helper()
	for year, month, today := time.Now().Date(); len(days) > 0; days = days[1:] {
		ago := days[0]
		end := time.Date(year, month, today-ago, 12, 0, 0, 0, time.Local)
		body := fmt.Appendf(nil, `{"heartbeats":[{"object":{"id":%q,"type":1},"kind":"finish","position_ms":1800000,"duration_ms":1800000,"session":"%s%d",
			"event_time":%q,"started_at":%q,"watched_ms":1800000,"meta":{"title":%q}}]}`,
			id, id, ago, end.UTC().Format(time.RFC3339), end.Add(-30*time.Minute).UTC().Format(time.RFC3339), title)
		w.ask(http.MethodPost, "/v1/heartbeats", body, &struct{}{})
	}
}

// TestStatistics reads a user's year, by keyboard, in another period, and as a picture.
func TestStatistics(t *testing.T) {
	w := newWorld(t)
	w.watch("film", "Low Tide", 3, 4, 5)
	w.watch("clip", "Harbour Lights", 40)
	v := w.open(w.signedIn("/"))
	v.click("nav a[href=stats]")
	v.says("#facts", "2 hr")
	v.says("#facts", "3 days")
	v.says("#most li:first-child", "Low Tide")
	v.says("#most li:first-child", "1 hr 30 min · 3 viewings · completed 3 times")
	v.until("document.querySelectorAll('#calendar rect').length >= 365 && document.querySelectorAll('#calendar .level4').length >= 3")
	v.until("document.querySelectorAll('#months rect').length >= 12")
	v.until("/^The most: .+: 30 min · 1 viewing · completed once/.test(document.querySelector('#calendar svg').getAttribute('aria-label'))")
	v.hasNames("heading The year at a glance", "heading Each month", "heading Most watched", "combobox Period", "button Print", "button Save as PNG")

	v.walk("summary")
	v.press(kb.Enter)
	v.until("document.querySelector('#days').checkVisibility() && document.querySelectorAll('#days tr').length >= 4")

	dir := t.TempDir()
	v.downloads(dir)
	v.click("#save")
	w.eventually("a PNG is saved", func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "statistics-*.png"))
		if err != nil || len(files) != 1 {
			return false
		}
		picture, err := os.ReadFile(files[0])
		if err != nil {
			return false
		}
		config, err := png.DecodeConfig(bytes.NewReader(picture))
		return err == nil && config.Width > 1000 && config.Height > 500
	})

	v.do(chromedp.Evaluate[chromedp.Void](`{const period = document.querySelector('#period'); period.value = period.options[5].value; period.dispatchEvent(new Event('change'))}`))
	v.says("#note", "Nothing in this time.")
	v.until("!document.querySelector('#numbers').checkVisibility() && document.querySelector('#save').disabled")
}
