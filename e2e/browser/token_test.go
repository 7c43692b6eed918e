//go:build browser

package browser_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/playhead/playhead/bff/token"
)

// TestNoToken asks for one, and shows nothing until it is right.
func TestNoToken(t *testing.T) {
	w := newWorld(t)
	w.report(library...)
	v := w.open(w.at("/"))
	v.expects("401")
	v.expects("HTTP Authentication failed")
	v.says("#sign-in", "Whose history?")
	v.until("!document.querySelector('main').checkVisibility() && document.activeElement.id === 'token'")
	v.press("not a token")
	v.press(kb.Enter)
	v.until("document.querySelector('#token').matches(':invalid') && document.querySelector('#sign-in').checkVisibility()")
	v.paste("eyJhbGciOiJub25lIn0.eyJzdWIiOiJkZW1vIn0.eA")
	v.says("#sign-in-problem", "The token was refused")
	v.paste(" " + w.token + " ")
	v.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	v.says("#user", "demo")
	other := v.beside(w, w.at("/")) // the other window tells it
	other.lists("Low Tide", "Winter Roads", "On Maps", "plain.id")
	stranger := w.open(w.at("/"))
	stranger.says("#sign-in", "Whose history?")
}

// TestExpiredToken says so: one that had expired before, and one that does while the page
// is open.
func TestExpiredToken(t *testing.T) {
	w := newWorld(t)
	secret := []byte("0123456789abcdef0123456789abcdef")
	w.stop()
	w.cfg.Secret = secret
	w.start()
	mint := func(life time.Duration) string {
		text, err := token.Mint(secret, "demo", life)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	v := w.open(w.at("/") + "#token=" + mint(-time.Minute))
	v.says("#sign-in-problem", "This token has expired")
	v.expects("401")
	v.do(chromedp.Navigate(w.at("/docs")), chromedp.Navigate(w.at("/")+"#token="+mint(3*time.Second-token.Leeway)))
	v.until("/refused|expired/.test(document.querySelector('#sign-in-problem')?.textContent)") // on a slow machine it had before
	v.do(chromedp.Navigate(w.at("/docs")), chromedp.Navigate(w.signedIn("/")))
	v.says("#note", "Nothing here yet")
}

// paste puts a token into the form, and sends it.
func (v *window) paste(text string) {
	v.Helper()
	v.until("document.activeElement.id === 'token'")
	v.do(chromedp.SetValue(chromedp.CSS("#token"), text))
	v.press(kb.Enter)
}
