// Package pebble keeps the cache and the archive in one directory on one machine,
// over one Pebble store.
//
// It is the store of the all-in-one binary: an acknowledged write has reached the
// disk, kill -9 loses nothing, and a directory belongs to one process.
//
// A heartbeat overwrites the one before it, so that most of what is written is
// garbage within seconds. Pebble alone would carry each of them through a memtable,
// a skip list of tens of megabytes, and most through a compaction. Here a journal,
// of Pebble's own log format, makes every change durable, and records of the cache
// wait in a map until a checkpoint moves the last of each to Pebble, in order. All
// else goes to Pebble at once. A start replays the journal since the last
// checkpoint.
//
// There is one journal, and what a crash takes of it is always its end. A change
// that need not survive by itself is therefore not synced: when it is on disk,
// everything before it is there too. Pebble never has more than the journal has on
// disk.
//
// A change is visible before it is on disk, so that calls share an fsync, and whoever
// answers by what was seen waits for the same fsync.
//
// A file beside the journal says how far the journal is on disk. A start that finds
// less is a start over damage, and refuses; what a crash took from the end was beyond
// that, and is left out.
package pebble
