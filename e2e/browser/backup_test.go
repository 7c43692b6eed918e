//go:build browser

package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

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
	v.says("#empty", "Nothing here yet")
	v.until("!document.querySelector('#continue').checkVisibility()")
	if ids := w.ids(); len(ids) != 0 {
		t.Errorf("left: %v", ids)
	}
}

// TestBackup restores a cleared history from the file that the page saved. The page reports the result.
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
	v.says("#empty", "Nothing here yet")
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
	v.click("#backup-go") // the delete is still pending
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
	v.until("/You stopped at 4:00, \\d+ minutes? ago/.test(document.querySelector('#resumed').innerText)") // not "just now", the time of the restore
}

// TestImportFile previews a file of another program, which needs the order of its dates, and imports it.
func TestImportFile(t *testing.T) {
	w := newWorld(t)
	v := w.openLibrary()
	now := time.Now().UTC()
	day := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC) // a day that may be a month too
	text := fmt.Sprintf("Title,Date\n\"The Lighthouse\",\"%s\"\n\"Half a date\",\"1/2\"\n", day.Format("1/2/06"))
	file := filepath.Join(t.TempDir(), "history.csv")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	v.click("#import")
	v.until("document.querySelector('#import-go').disabled")
	v.expects("422 (Unprocessable Entity)") // the order of the dates is requested
	v.chooses("#import-file", file)
	v.says("#import-result", "Which comes first")
	v.do(chromedp.Evaluate[chromedp.Void]("{const s = document.querySelector('#import-dates'); s.value = 'mdy'; s.dispatchEvent(new Event('change'))}"))
	v.says("#import-result", "1 entry can be taken in. 1 entry could not be read: line 3")
	v.says("#import-first", "The Lighthouse")
	v.click("#import-go")
	v.says("#import-result", "1 entry was taken in.")
	v.click("#import-close")
	v.says("#list", "The Lighthouse")
	if w.point("netflix:The Lighthouse") == nil {
		t.Error("the film is not in the history")
	}
}
