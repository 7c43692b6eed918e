package pebble

import "github.com/cockroachdb/pebble/v2"

// sizes bounds the memory and the open files of a store. They shrink with the memory of the process.
type sizes struct {
	// journal is the journal size in bytes at which a checkpoint is due. A start after a crash replays up to twice
	// that, and as much may be in memory.
	journal int64
	// cache is the size of Pebble's block cache, memtable that of each of its memtables. Both are outside the Go heap.
	cache    int64
	memtable uint64
	// Half the numbers of cached stamps (some 40 bytes each), users, and users with their newest records.
	stamps, users, heads int
	orders               int // bytes of all orders
	segments             int // half the bytes of cached segments
	files                int // open at once
}

const (
	memtables = 4 // at most: writers wait for the oldest
	// roomy is the process memory that needs no reduction. The store takes some 700 MiB of it.
	roomy = 2 << 30
	// maxFiles limits open files, some of which are not tables.
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

func (s sizes) apply(o *pebble.Options) {
	o.MemTableSize, o.MaxOpenFiles, o.MemTableStopWritesThreshold = s.memtable, s.files, memtables
	o.CacheSize = s.cache + memtables*int64(s.memtable) // Pebble takes memtables out of the cache
}
