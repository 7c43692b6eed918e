//go:build browser

package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestDocs finds an operation by search and calls it with the token from the address.
func TestDocs(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.signedIn("/docs"))
	v.until("document.querySelectorAll('#menu a').length > 10")
	v.do(chromedp.SendKeys("#search", "/v1/continue"))
	v.until("document.querySelectorAll('#menu a:not([hidden])').length === 2")
	v.click("#menu a[title='GET /v1/continue']")
	v.click(".opblock.is-open .execute")
	v.until("document.querySelector('.live-responses-table tbody .response-col_status')")
	if status := v.text(".live-responses-table tbody .response-col_status"); !strings.HasPrefix(status, "200") {
		t.Errorf("the answer is %q", status)
	}
}
