// Package bloom implements a split-block Bloom filter: a lookup touches one cache line. It has false positives
// and no false negatives.
package bloom

import (
	"encoding/binary"
	"math/bits"
)

const (
	// BlockSize is the size of a block in bytes: eight 32-bit words. Each key sets one bit in each word.
	BlockSize    = 32
	keysPerBlock = 20
)

// salts are the multipliers of the Parquet format, one for each word of a block.
var salts = [8]uint32{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31}

// Filter is also the stored form: whole blocks of [BlockSize] bytes, with little-endian words. A filter without
// blocks is empty.
type Filter []byte

// New returns an empty filter sized for keys: 1.6 bytes per key, 0.4 % false positives.
func New(keys int) Filter {
	return make(Filter, max((keys+keysPerBlock-1)/keysPerBlock, 1)*BlockSize)
}

// Add adds a key by its 64-bit hash. All bits must be well mixed.
func (f Filter) Add(hash uint64) {
	b := f.block(hash)
	for i, salt := range salts {
		word := b[4*i:]
		binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)|1<<(uint32(hash)*salt>>27))
	}
}

// Has reports whether a key with this hash may have been added.
func (f Filter) Has(hash uint64) bool {
	if len(f) < BlockSize {
		return false
	}
	b := f.block(hash)
	for i, salt := range salts {
		if binary.LittleEndian.Uint32(b[4*i:])&(1<<(uint32(hash)*salt>>27)) == 0 {
			return false
		}
	}
	return true
}

// block selects a block by the upper half of the hash; the lower half selects bits.
func (f Filter) block(hash uint64) *[BlockSize]byte {
	i, _ := bits.Mul64(hash, uint64(len(f)/BlockSize))
	return (*[BlockSize]byte)(f[i*BlockSize:])
}
