// Package redis keeps records in Redis 7.0 or later, one server or a cluster. It
// is a [history.Cache].
//
// A user's keys share the hash tag of the user's bucket, so that one script may
// touch all of them in a cluster too:
//
//	{b0007}:c:<uid>:100_1  string  the record, as package wire encodes it
//	{b0007}:h:<uid>        zset    the list: members "100_1", scores ms + rank/4
//	{b0007}:u:<uid>        hash    floor, cleared, cleared:<type>, paused, resumed, seen; trimmed
//	                               of a cold user
//	{b0007}:dirty          zset    members "<uid>/100_1" and "<uid>/*", scores microseconds
//	{b0007}:firsts         zset    members "<uid>/20261121" that are not announced, scores microseconds
//
// Contents expire after the configured life, lists and users' states a day later:
// a state only while recording is on:
// every write starts the former anew, a new dirty mark the latter when half of that
// day is over. A content that expired before its place in the list leaves a hole,
// which readers skip.
//
// Whatever writes is a script, so that it is one step. Scripts travel by digest, in
// pipelines; a server that forgot them gets them again. On one server a script
// takes many writes, in a cluster those of one bucket.
package redis
