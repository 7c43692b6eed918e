// Package bench measures the product. [Run] sends the same heartbeats to it and to
// PostgreSQL, in turns. The package's benchmarks measure its parts between real engines:
// what the heartbeats cost, what the archive is spared, and what it costs that none is ever
// lost. Whatever is measured is compared with something else in the same run, because
// absolute figures move with the machine.
package bench
