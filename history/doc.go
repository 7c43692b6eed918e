// Package history is the domain of Playhead: who watched, read or heard what, how
// far, and when.
//
// A player reports an [Event]. Events of one [Key] fold into a [Record], and the
// fold is commutative and idempotent, so that reports may arrive late, twice, in
// any order and through several services and still end in one state. The stores
// that keep records are contracts here ([Cache], [Archive], [Publisher],
// [Consumer]) and adapters in the packages below, all of which pass the suites of
// package historytest.
//
// Times are Unix milliseconds, positions and durations are milliseconds, unless a
// comment says otherwise. The package needs the standard library only.
package history
