// Package faults breaks things under load and counts what that cost: it starts real
// engines and the real commands, kills, stops and cuts them off, and compares what
// the stores hold afterwards with what was acknowledged.
//
// One oracle judges every case. A client notes each event before it is sent and each
// acknowledgement when it comes. Once things are quiet (no dirty mark, no message
// left in the queue) the cache and the archive must hold, for every key, a fold of
// all acknowledged events and of any of the others, and nothing at or before a
// delete: the latest event, the furthest position, plays, watched time, metadata and the
// resume point. Pages must show all of it, without a gap or a repeat. The oracle computes
// that without the product's merge.
//
// Readers read while things break, too. What was acknowledged before a read began must be
// in it, unless it is marked as incomplete, or the case takes away the cache itself.
package faults
