package bloom_test

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/playhead/playhead/internal/bloom"
)

// TestFilter checks for false negatives and the rate of false positives at several sizes.
func TestFilter(t *testing.T) {
	for _, n := range []int{1, 19, 20, 100, 100_000} {
		f := bloom.New(n)
		added, again := rand.New(rand.NewPCG(1, uint64(n))), rand.New(rand.NewPCG(1, uint64(n)))
		for range n {
			f.Add(added.Uint64())
		}
		for i := range n {
			if !f.Has(again.Uint64()) {
				t.Fatalf("of %d keys, key %d is not there", n, i)
			}
		}
		wrong := 0
		for range 100_000 {
			if f.Has(added.Uint64()) {
				wrong++
			}
		}
		if wrong > 1000 {
			t.Errorf("with %d keys it finds %d of 100000 that were not added, want one in 250", n, wrong)
		}
	}
}

func TestEmptyFilter(t *testing.T) {
	if bloom.Filter(nil).Has(1) || bloom.New(10).Has(1) {
		t.Error("an empty filter has a key")
	}
}

// TestGolden pins the stored form.
func TestGolden(t *testing.T) {
	f := bloom.New(1)
	f.Add(0x0123456789abcdef)
	f.Add(0xfedcba9876543210)
	want, err := hex.DecodeString("1000040010000800000001400000900010200000000401000010008000000009")
	if err != nil || !bytes.Equal(f, want) {
		t.Errorf("got %x, want %x, %v", []byte(f), want, err)
	}
}

// TestGrowing finds every added hash and few others, across several filters.
func TestGrowing(t *testing.T) {
	var f bloom.Growing
	const n = 1 << 20
	added := rand.New(rand.NewPCG(1, 1))
	for range n {
		f.Add(added.Uint64())
	}
	again := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		if !f.Has(again.Uint64()) {
			t.Fatalf("hash %d is not there", i)
		}
	}
	wrong := 0
	for range n {
		if f.Has(added.Uint64()) {
			wrong++
		}
	}
	if wrong > n/50 {
		t.Errorf("finds %d of %d that were not added", wrong, n)
	}
}
