// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package client

import "time"

// deviceClock returns the device's clocks for [Config.Clock].
func deviceClock() func() (shown time.Time, elapsed time.Duration) {
	began := time.Now()
	return wakeful(func() (time.Time, time.Duration) { return steadily(began) })
}
