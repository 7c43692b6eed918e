// Package observe has the alerting rules of Prometheus.
package observe

import _ "embed"

// Limits of the alerts, in seconds or as a share. `playhead doctor` and the operator's page have the same.
const (
	OldestMark       = 300 // age of an unarchived record
	ConsumerLag      = 120
	OldestNote       = 24 * 3600 // wait for compaction
	CertificateLeft  = 14 * 24 * 3600
	ClockAhead       = 1 // of Redis
	EngineClockAhead = 10
	Full             = .85 // of memory or held keys
)

// Alerts is a rule file of Prometheus.
//
//go:embed alerts.yml
var Alerts string
