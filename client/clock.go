package client

import (
	"sync"
	"time"
)

// longSleep is longer than any sleep, and shorter than what a clock is off that starts
// anew: what happened before it is too old to be reported.
const longSleep = 90 * 24 * time.Hour

// wakeful returns a clock for systems whose steady time stands still while the device
// sleeps. There a shown time that has run ahead is taken for a sleep, and any other
// difference for a clock that was set.
func wakeful(now func() (shown time.Time, steady time.Duration)) func() (time.Time, time.Duration) {
	var mu sync.Mutex
	var elapsed time.Duration
	lastShown, lastSteady := now()
	return func() (time.Time, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		shown, steady := now()
		passed := steady - lastSteady
		if seen := shown.Sub(lastShown); seen > passed && seen < longSleep {
			passed = seen
		}
		lastShown, lastSteady, elapsed = shown, steady, elapsed+passed
		return shown, elapsed
	}
}

// steadily returns the shown time, and the time since began as far as the device was awake.
func steadily(began time.Time) (time.Time, time.Duration) {
	now := time.Now()
	return now.Round(0), now.Sub(began)
}
