// Package faults breaks things under load and counts what that cost: it starts real
// engines and the real commands, kills, stops and cuts them off, and compares what
// the stores hold afterwards with what was acknowledged.
//
// One oracle judges every case. A client notes each event before it is sent and each
// acknowledgement when it comes. Once things are quiet (no dirty mark, no message
// left in the queue) the cache and the archive must hold, for every key, a fold of
// all acknowledged events and of any of the others, and nothing at or before a
// delete. The oracle computes that without the product's merge.
package faults
