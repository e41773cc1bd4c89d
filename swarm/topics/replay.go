package topics

import (
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
)

// replay drops messages that were seen before. Each author numbers its messages upwards, over its restarts
// too; a message counts once, and only while its number is within the last replayWindow. Unlike
// a bare maximum this lets messages through that overtook each other.
type replay struct {
	// mu guards seen.
	mu   sync.Mutex
	seen map[peer.ID]*window
}

const replayWindow = 512

// window holds the highest number seen and one bit for each of the numbers up to it.
type window struct {
	top  uint64
	bits [replayWindow / 64]uint64
}

// fresh notes number n of an author and reports whether it is new. The caller has checked that the author is a
// member, which bounds the map.
func (r *replay) fresh(author peer.ID, n uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.seen[author]
	if w == nil {
		w = &window{top: n}
		r.seen[author] = w
	}
	return w.take(n)
}

func (w *window) take(n uint64) bool {
	if n > w.top {
		if n-w.top >= replayWindow {
			w.bits = [replayWindow / 64]uint64{}
		} else {
			for i := w.top + 1; i <= n; i++ { // clears the numbers that come into the window
				w.bits[i%replayWindow/64] &^= 1 << (i % 64)
			}
		}
		w.top = n
	} else if w.top-n >= replayWindow {
		return false
	}
	word, bit := &w.bits[n%replayWindow/64], uint64(1)<<(n%64)
	old := *word&bit != 0
	*word |= bit
	return !old
}
