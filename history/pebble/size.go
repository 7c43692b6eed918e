package pebble

import "github.com/cockroachdb/pebble/v2"

// sizes bound what a store has in memory and open. Those of a store in little memory are as much smaller.
type sizes struct {
	// journal is how many bytes of journal make a checkpoint due: a start after a crash replays up to two files of that
	// size, and that much may be in memory.
	journal int64
	// cache is how many bytes of Pebble's blocks are kept, memtable the size of one of its four memtables. Both are not
	// of the Go heap.
	cache    int64
	memtable uint64
	// Times two: how many stamps, at some 40 bytes each, users, and users with their newest records are kept.
	stamps, users, heads int
	orders               int // bytes of all orders
	segments             int // bytes of a half of the segments that were read
	files                int // that are open at once
}

const (
	// roomy is how much memory a process has at least that needs no smaller sizes: the store takes some 700 MiB of it.
	roomy = 2 << 30
	// maxFiles bounds the files that are open at once, of which some are not tables.
	maxFiles = 1000
)

func sizesFor(memory int64, files int) sizes {
	if memory <= 0 || memory > roomy {
		memory = roomy
	}
	share := func(most, least int64) int64 { return max(int64(float64(most)*float64(memory)/roomy), least) }
	s := sizes{
		journal: share(64<<20, 4<<20), cache: share(64<<20, 4<<20), memtable: uint64(share(32<<20, 2<<20)), //nolint:gosec // more than 0
		stamps: int(share(1<<19, 1<<12)), users: int(share(1<<15, 1<<10)), heads: int(share(512, 32)),
		orders: int(share(64<<20, 1<<20)), segments: int(share(16<<20, 1<<20)), files: maxFiles,
	}
	if files > 0 {
		s.files = min(files, maxFiles)
	}
	return s
}

// apply sets those of Pebble.
func (s sizes) apply(o *pebble.Options) {
	o.CacheSize, o.MemTableSize, o.MaxOpenFiles = s.cache, s.memtable, s.files
	o.MemTableStopWritesThreshold = 4
}
