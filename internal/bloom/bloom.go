// Package bloom has a Bloom filter whose look-up touches one line of the processor's cache:
// it says of most keys that were never added that they were not, and never so of one that was.
package bloom

import (
	"encoding/binary"
	"math/bits"
)

const (
	// BlockSize is how many bytes a block has: eight words of 32 bits, each of which has one bit of
	// each of the block's keys.
	BlockSize    = 32
	keysPerBlock = 20
)

// salts make eight numbers of a hash. They are those of the Parquet format.
var salts = [8]uint32{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31}

// Filter is a filter, which is stored as it is: whole blocks of [BlockSize] bytes, the words
// little endian. Without a block it has nothing.
type Filter []byte

// New returns an empty filter for so many keys: it takes 1.6 bytes for each, and finds one in
// 250 that it does not have.
func New(keys int) Filter {
	return make(Filter, max((keys+keysPerBlock-1)/keysPerBlock, 1)*BlockSize)
}

// Add adds a key by its hash, all of whose 64 bits must be good.
func (f Filter) Add(hash uint64) {
	b := f.block(hash)
	for i, salt := range salts {
		word := b[4*i:]
		binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)|1<<(uint32(hash)*salt>>27))
	}
}

// Has reports whether a key of this hash may have been added.
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

// block takes the upper half of a hash, the bits in the block the lower one.
func (f Filter) block(hash uint64) *[BlockSize]byte {
	i, _ := bits.Mul64(hash, uint64(len(f)/BlockSize))
	return (*[BlockSize]byte)(f[i*BlockSize:])
}
