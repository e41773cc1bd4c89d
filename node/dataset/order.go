package dataset

import "sort"

// poolChunks is how many chunks' samples are shuffled among themselves.
const poolChunks = 16

// Purposes of keys, so that no two shuffles of a run share one.
const (
	forOffset = 1 + iota
	forChunks
	forPool
)

// stream holds the sizes that the order of an epoch depends on, in tokens.
type stream struct {
	// train tokens may be trained on: the first of the stream.
	train int64
	// chunk is the number of tokens of every chunk but the last.
	chunk int64
	// context is T, the distance of two samples.
	context int64
}

// slack is how many offsets an epoch may choose from, less one: at most T-1, and no more
// than leaves one sample.
func (s stream) slack() int64 { return min(s.context-1, s.train-1-s.context) }

// samples is the number of samples of every epoch, at least 1: each takes T tokens, and the
// last one more.
func (s stream) samples() int64 { return (s.train - 1 - s.slack()) / s.context }

// chunks is how many chunks the part to train on touches.
func (s stream) chunks() int64 { return (s.train + s.chunk - 1) / s.chunk }

// order is the order of one epoch's samples.
type order struct {
	stream stream
	seed   uint64
	epoch  int64
	offset int64       // first token of sample 0
	chunks permutation // slot -> chunk
	// starts[s] is the position of the first sample of slot s; the last entry is the number
	// of samples.
	starts []int64
}

func newOrder(s stream, seed uint64, epoch int64) *order {
	o := &order{
		stream: s, seed: seed, epoch: epoch,
		offset: int64(below(key(forOffset, seed, uint64(epoch)), uint64(s.slack()+1))),
		chunks: newPermutation(key(forChunks, seed, uint64(epoch)), uint64(s.chunks())),
		starts: make([]int64, s.chunks()+1),
	}
	for slot := range s.chunks() {
		chunk := o.chunk(slot)
		o.starts[slot+1] = o.starts[slot] + o.first(chunk+1) - o.first(chunk)
	}
	return o
}

// chunk is the chunk at a slot of the shuffled order.
func (o *order) chunk(slot int64) int64 { return int64(o.chunks.at(uint64(slot))) }

// first is the first sample whose first token lies in the chunk or behind it.
func (o *order) first(chunk int64) int64 {
	tokens := chunk*o.stream.chunk - o.offset
	if tokens <= 0 {
		return 0
	}
	return min((tokens+o.stream.context-1)/o.stream.context, o.stream.samples())
}

// slot returns the slot that a position of the epoch belongs to.
func (o *order) slot(position int64) int64 {
	return int64(sort.Search(len(o.starts)-1, func(s int) bool { return o.starts[s+1] > position }))
}

// sample returns the number of the sample at a position of the epoch, [0, samples) both.
func (o *order) sample(position int64) int64 {
	pool := o.slot(position) / poolChunks
	begin := o.starts[pool*poolChunks]
	end := o.starts[min((pool+1)*poolChunks, int64(len(o.starts)-1))]
	shuffle := newPermutation(key(forPool, o.seed, uint64(o.epoch), uint64(pool)), uint64(end-begin))
	position = begin + int64(shuffle.at(uint64(position-begin)))
	slot := o.slot(position)
	return o.first(o.chunk(slot)) + position - o.starts[slot]
}

// token is the first token of a sample in the stream.
func (o *order) token(sample int64) int64 { return o.offset + sample*o.stream.context }
