// Package generators makes clients from docs/api/openapi.json, builds them, and runs them against the all-in-one:
// make generators.
package generators
