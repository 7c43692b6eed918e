// Package observe has the alerting rules of Prometheus.
package observe

import _ "embed"

// Alerts is a rule file of Prometheus.
//
//go:embed alerts.yml
var Alerts string
