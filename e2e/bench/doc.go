// Package bench measures the product between real engines, and once, in virtual
// time, without any: what the heartbeats cost, what the archive is spared, and what
// it costs that none is ever lost. Each benchmark compares what it measures with
// the bare engine in the same run, because absolute figures move with the machine.
package bench
