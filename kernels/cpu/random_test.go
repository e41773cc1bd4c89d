package cpu

import (
	"math"
	"testing"

	"pnode/kernels"
)

// TestPhiloxAcrossWords compares the variants where a counter needs its high word.
func TestPhiloxAcrossWords(t *testing.T) {
	r := kernels.Random{Key: 0xfedcba9876543210, Stream: 0x0123456789abcdef}
	for _, block := range []uint64{0, 5, 1<<32 - 8, 1<<32 - 3, 7 << 40} {
		want, got := make([]uint32, 64), make([]uint32, 64)
		philoxGeneric(want, r, block)
		for _, v := range candidates() {
			v.philox(got, r, block)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s: block %d: word %d is %x, want %x", v.name, block, i, got[i], want[i])
				}
			}
		}
	}
}

// TestCastsOfSpecialNumbers holds the casts to what happens at the ends: ties, overflow to
// infinity, denormal numbers, and NaN, which must not become infinite.
func TestCastsOfSpecialNumbers(t *testing.T) {
	bits := []uint32{
		0, 1 << 31, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff, 0xff7fffff,
		0x7f800000, 0xff800000, 0x7f800001, 0x7fffffff, 0xff80ffff, 1, 0x00008000, 0x00018000, 0x7f7f8000, 0x80000001,
	}
	want := []uint16{
		0, 0x8000, 0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x7f80, 0xff80,
		0x7f80, 0xff80, 0x7fc0, 0x7fff, 0xffc0, 0, 0, 2, 0x7f80, 0x8000,
	}
	x := make([]float32, len(bits))
	for i, b := range bits {
		x[i] = math.Float32frombits(b)
	}
	for _, v := range candidates() {
		got := make([]uint16, len(bits))
		v.narrow(got, x)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %08x becomes %04x, want %04x", v.name, bits[i], got[i], want[i])
			}
		}
	}
}

// TestRoundsByChanceWithinNeighbours: the least word cuts off, the largest takes what is between two
// numbers to the upper one, and neither changes what BF16 holds or makes NaN infinite.
func TestRoundsByChanceWithinNeighbours(t *testing.T) {
	bits := []uint32{
		0, 1 << 31, 0x3f800000, 0x3f800001, 0x3f80ffff, 0xbf808000, 0x7f7fffff,
		0x7f800000, 0xff800000, 0x7f800001, 0x7fffffff, 0xff80ffff, 0x00008000,
	}
	down := []uint16{0, 0x8000, 0x3f80, 0x3f80, 0x3f80, 0xbf80, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7fff, 0xffc0, 0}
	up := []uint16{0, 0x8000, 0x3f80, 0x3f81, 0x3f81, 0xbf81, 0x7f80, 0x7f80, 0xff80, 0x7fc0, 0x7fff, 0xffc0, 1}
	x, words := make([]float32, len(bits)), make([]uint32, len(bits))
	for i, b := range bits {
		x[i] = math.Float32frombits(b)
	}
	for _, v := range candidates() {
		for word, want := range map[uint32][]uint16{0: down, 0xffff: down, math.MaxUint32: up} {
			for i := range words {
				words[i] = word
			}
			got := make([]uint16, len(bits))
			v.round(got, x, words)
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%s: %08x becomes %04x by %08x, want %04x", v.name, bits[i], got[i], word, want[i])
				}
			}
		}
	}
}
