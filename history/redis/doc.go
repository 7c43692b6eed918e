// Package redis keeps records in Redis 7.0 or later, one server or a cluster. It
// is a [history.Cache].
//
// A user's keys share the hash tag of the user's bucket, so that one script may
// touch all of them in a cluster too:
//
//	{b0007}:c:<uid>:100_1  string  the record, as package wire encodes it
//	{b0007}:h:<uid>        zset    the list: members "100_1", scores ms + rank/4
//	{b0007}:u:<uid>        hash    floor, warmed (ms), cleared, cleared:<type>, cut, paused, resumed,
//	                               rev (of the clear marks and the pause), seen; trimmed of a cold user
//	{b0007}:dirty          zset    members "<uid>/100_1" and "<uid>/*", scores microseconds
//	{b0007}:firsts         zset    members "<uid>/20261121" that are not announced, scores microseconds
//	{b0007}:life           string  random, in the first bucket of each server: it goes with its data
//
// Contents expire after the configured life, lists and users' states a day later:
// a state only while recording is on:
// every write starts the former anew, a new dirty mark the latter when half of that
// day is over. A content that expired before its place in the list leaves a hole,
// which readers skip. Where contents live shorter than in the archive, a user is cold again
// after nine tenths of that, so that warmth never outlives a record.
//
// Byte 8 of a content has the highest bit set once the archive has it. Until then the key
// has a dirty mark, which is written before the content and removed after the bit is set.
//
// Whatever writes is a script, so that it is one step. Scripts travel by digest, in
// pipelines; a server that forgot them gets them again. On one server a script
// takes many writes, in a cluster those of one bucket. There all keys that a script may
// touch are declared, so that none runs on a part of them while a slot moves; for what only
// the list knows, the list is read first, and the script refuses when it has grown.
package redis
