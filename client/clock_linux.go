// SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// deviceClock returns the device's clocks for [Config.Clock].
func deviceClock() func() (shown time.Time, elapsed time.Duration) {
	began := time.Now()
	fallback := wakeful(func() (time.Time, time.Duration) { return steadily(began) })
	return func() (time.Time, time.Duration) {
		var t unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
			return fallback()
		}
		return time.Now().Round(0), time.Duration(t.Nano())
	}
}
