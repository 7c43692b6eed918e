//go:build browser

package browser_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var chromium context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.DisableGPU, chromedp.NoSandbox,
		chromedp.Flag("disable-component-update", true), chromedp.Flag("mute-audio", true), chromedp.WindowSize(1200, 900))
	start, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var end context.CancelFunc
	chromium, end = chromedp.NewContext(start) //nolint:fatcontext // it is the first and the last
	defer end()
	if err := chromedp.Do(chromium); err != nil {
		fmt.Fprintln(os.Stderr, "chromium:", err)
		return 1
	}
	return m.Run()
}

// window is a tab. It fails the test if its page requests another site or logs an error.
type window struct {
	*testing.T
	ctx  context.Context
	home string
	// others is the prefix of other allowed addresses, if any.
	others string

	mu       sync.Mutex
	expected []string // substrings of expected complaints
	said     []string // messages of the page's WebSockets
}

// open opens a window on a page of the world, in a fresh browser profile.
func (w *world) open(address string) *window {
	w.Helper()
	return w.window(chromium, chromedp.WithNewBrowserContext(), address)
}

// beside opens another window in the same profile.
func (v *window) beside(w *world, address string) *window {
	w.Helper()
	id := chromedp.FromContext(v.ctx).BrowserContextID
	return w.window(chromium, chromedp.WithExistingBrowserContext(id), address)
}

func (w *world) window(parent context.Context, option chromedp.ContextOption, address string) *window {
	w.Helper()
	v := &window{T: w.T, home: w.cfg.HTTP}
	ctx, cancel := chromedp.NewContext(parent, option, chromedp.WithListener(v.hear))
	w.Cleanup(cancel)
	v.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as this context
		w.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		w.Fatal(err)
	}
	v.do(chromedp.Navigate(address))
	return v
}

// expects allows a complaint of the page that the test provokes.
func (v *window) expects(complaint string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.expected = append(v.expected, complaint)
}

func (v *window) hear(ev any) {
	switch e := ev.(type) {
	case *network.EventRequestWillBeSent:
		v.stays(e.Request.URL)
	case *network.EventWebSocketCreated:
		v.stays(e.URL)
	case *network.EventWebSocketFrameSent:
		v.mu.Lock()
		v.said = append(v.said, string(e.Response.PayloadData))
		v.mu.Unlock()
	case *runtime.EventExceptionThrown:
		v.complaint(e.ExceptionDetails.Text + " " + e.ExceptionDetails.Exception.Description)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			v.complaint(e.Entry.Text + " " + e.Entry.URL)
		}
	}
}

func (v *window) stays(address string) {
	_, rest, _ := strings.Cut(address, "://")
	if rest != v.home && !strings.HasPrefix(rest, v.home+"/") && !strings.HasPrefix(address, "about:") && !strings.HasPrefix(address, "data:") && (v.others == "" || !strings.HasPrefix(rest, v.others)) {
		v.Errorf("the page asked for %s", address)
	}
}

func (v *window) complaint(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, expected := range v.expected {
		if strings.Contains(text, expected) {
			return
		}
	}
	v.Errorf("the page complained: %s", text)
}

// do runs actions within the patience.
func (v *window) do(steps ...chromedp.Action[chromedp.Void]) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		v.Fatalf("%v; the page says: %s", err, v.page())
	}
}

// value returns the value of an expression in the page.
func value[T any](v *window, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// until waits for an expression to be true. It is false while the page is loading.
func (v *window) until(expression string) {
	v.Helper()
	var last error
	for began := time.Now(); time.Since(began) < patience; time.Sleep(40 * time.Millisecond) {
		var holds bool
		if holds, last = value[bool](v, "Boolean("+expression+")"); holds {
			return
		}
	}
	v.Fatalf("not within %v: %s (%v); the page says: %s", patience, expression, last, v.page())
}

func (v *window) text(selector string) string {
	text, err := value[string](v, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
	if err != nil {
		return err.Error()
	}
	return text
}

// page returns the page's text; of a long one its first and last lines.
func (v *window) page() string {
	lines := strings.Split(v.text("body"), "\n")
	if some := 30; len(lines) > 2*some {
		lines = slices.Concat(lines[:some], []string{fmt.Sprintf("... %d lines ...", len(lines)-2*some)}, lines[len(lines)-some:])
	}
	return strings.Join(lines, "\n")
}

func (v *window) says(selector, text string) {
	v.Helper()
	v.until(fmt.Sprintf("document.querySelector(%q)?.checkVisibility() && document.querySelector(%[1]q).innerText.includes(%q)", selector, text))
}

func (v *window) lists(titles ...string) {
	v.Helper()
	v.until(fmt.Sprintf("[...document.querySelectorAll('#list .title')].map((a) => a.textContent).join('|') === %q", strings.Join(titles, "|")))
}

// click clicks with the mouse once the element is visible and does not move.
func (v *window) click(selector string) {
	v.Helper()
	v.until(fmt.Sprintf("document.querySelector(%q)?.checkVisibility() && !document.querySelector(%[1]q).disabled && document.getAnimations().length === 0", selector))
	v.do(chromedp.Click(chromedp.CSS(selector)))
}

func (v *window) press(keys string) {
	v.Helper()
	v.do(chromedp.KeyEvent(keys))
}

func (v *window) chooses(selector, file string) {
	v.Helper()
	v.do(chromedp.SetUploadFiles(chromedp.CSS(selector), []string{file}))
}

// downloads saves the pages' downloads in a folder.
func (v *window) downloads(dir string) {
	v.Helper()
	c := chromedp.FromContext(v.ctx)
	params := browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, BrowserContextID: c.BrowserContextID, DownloadPath: dir,
	}
	if _, err := chromedp.Call(v.ctx, browser.SetDownloadBehavior, params); err != nil {
		v.Fatal(err)
	}
}

// live waits until the page is connected.
func (v *window) live() {
	v.Helper()
	v.says("#connection", "Live")
}

// openAfter opens an address in a window that runs a script before the page's own.
func (w *world) openAfter(script, address string) *window {
	w.Helper()
	v := w.open(w.at("/docs"))
	v.beforePages(script)
	v.do(chromedp.Navigate(address))
	return v
}

// beforePages runs a script before those of each page opened later.
func (v *window) beforePages(script string) {
	v.Helper()
	params := page.AddScriptToEvaluateOnNewDocumentParams{Source: script}
	if _, err := chromedp.Call(v.ctx, page.AddScriptToEvaluateOnNewDocument, params); err != nil {
		v.Fatal(err)
	}
}

// blocked blocks exactly these paths.
func (v *window) blocked(paths ...string) {
	v.Helper()
	var patterns []*network.BlockPattern
	for _, path := range paths {
		patterns = append(patterns, &network.BlockPattern{URLPattern: "http://" + v.home + path, Block: true})
	}
	if _, err := chromedp.Call(v.ctx, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: patterns}); err != nil {
		v.Fatal(err)
	}
}

// call sends the browser a command for a window.
func call[P, R any](v *window, command cdp.Command[P, R], params P) {
	v.Helper()
	if _, err := chromedp.Call(v.ctx, command, params); err != nil {
		v.Fatal(err)
	}
}
