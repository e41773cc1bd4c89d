package synthetic

import (
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
)

// What names the text for people.
const What = "sums, products and sentences of a small grammar"

// Bytes is the usual size: more than the default run reads, so that nothing is learned by heart.
const Bytes = 4_000_000

// seed is fixed: two runs that differ in their own seed alone read the same text.
const seed = 1

// Floor returns the least loss of any model on this text in the long run, in nats a byte.
func Floor() float64 {
	entropy, bytes := 0.0, 0.0
	for _, k := range kinds {
		entropy += k.entropy + math.Log(float64(len(kinds)))
		bytes += k.bytes
	}
	return entropy / bytes
}

// Write writes at most size bytes: whole lines, as many as fit.
func Write(w io.Writer, size int) error {
	source := rand.NewPCG(seed, 0)
	// below takes its numbers from the generator itself, whose sequence is specified: how package rand makes ranges of it is not.
	below := func(n int) int {
		high, _ := bits.Mul64(source.Uint64(), uint64(n))
		return int(high)
	}
	var line []byte
	for {
		line = kinds[below(len(kinds))].draw(line[:0], below)
		if size -= len(line); size < 0 {
			return nil
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
}
