// Package browser tests the pages in Chromium, against the all-in-one: make browser.
package browser
