package client_test

import (
	"testing"
	"time"

	"github.com/playhead/playhead/client"
)

// Where the steady time stands still in sleep, a shown time that runs ahead is a sleep, and
// any other difference a clock that was set.
func TestWakeful(t *testing.T) {
	shown, steady := time.Unix(1_000_000, 0), time.Duration(0)
	clock := client.Wakeful(func() (time.Time, time.Duration) { return shown, steady })
	for _, tt := range []struct {
		what                 string
		shown, steady, wants time.Duration
	}{
		{"awake", time.Second, time.Second, time.Second},
		{"asleep", time.Hour, time.Second, time.Hour},
		{"set back", -time.Hour, time.Second, time.Second},
		{"set from 1970", 50 * 365 * 24 * time.Hour, time.Second, time.Second},
	} {
		_, before := clock()
		shown, steady = shown.Add(tt.shown), steady+tt.steady
		if _, after := clock(); after-before != tt.wants {
			t.Errorf("%s: %v elapsed, want %v", tt.what, after-before, tt.wants)
		}
	}
}
