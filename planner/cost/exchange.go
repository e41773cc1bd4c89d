package cost

import (
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// exchangeCopies is how many times the gradients that are exchanged at a time are in a node's memory at most: copied for the network, in
// messages that were sent and are not acknowledged yet, and in those that came and are not added up yet.
const exchangeCopies = 3

// outerScratch are the bytes for each element of the longest layer through which outer steps pass: parameters as they are read from the device and as they are to
// be, what is learned, and what is looked at.
const outerScratch = 16

// OuterPerParam returns what outer steps of so many replicas take for each parameter of a layer: the reference, the outer momentum, what messages lacked,
// the messages of all, of so many bytes, and where some are late the parameters as they were offered.
func OuterPerParam(replicas int, message int64, late bool) int64 {
	each := 12 + int64(replicas)*message
	if late {
		each += 4
	}
	return each
}

// exchange has what layers take of a node's memory while their gradients, or the parameters that replicas updated in parts, are exchanged. A stage
// exchanges plan.ExchangedBytes at a time, and a larger layer alone.
type exchange struct {
	sums []int64 // prefixes over layers of their gradients
	// window is what a stage has under way at most without the model's first and last layer, which may be far larger than others: first and
	// last are what these take beyond that.
	window, first, last int64
	longest             int64 // elements of a layer
}

func newExchange(costs []model.LayerCost) exchange {
	n := len(costs)
	e := exchange{sums: make([]int64, n+1), window: plan.ExchangedBytes}
	grads := func(layer int) int64 { return costs[layer].ParamBytes - costs[layer].FrozenBytes }
	for l := range n {
		e.sums[l+1] = e.sums[l] + grads(l)
		e.longest = max(e.longest, grads(l)/4)
		if l > 0 && l < n-1 {
			e.window = max(e.window, grads(l))
		}
	}
	if n > 0 {
		e.first, e.last = max(0, grads(0)-e.window), max(0, grads(n-1)-e.window)
	}
	return e
}

// of returns what layers [first,end) have under way at most.
func (e exchange) of(first, end int) int64 {
	most := e.window
	if first == 0 {
		most = max(most, e.window+e.first)
	}
	if end == len(e.sums)-1 {
		most = max(most, e.window+e.last)
	}
	return min(most, e.sums[end]-e.sums[first])
}

// Trained returns how many parameters of layers [first,end) replicas have something to say of: the embedding's other end learns what that does.
func (b *MemoryModel) Trained(first, end int) int64 {
	elements := (b.exchange.sums[end] - b.exchange.sums[first]) / 4
	if end == b.Layers() {
		elements -= int64(b.model.TiedGrad)
	}
	return max(0, elements)
}

// Outer returns the bytes of a node's memory that outer steps of layers [first,end) of one stage take.
func (b *MemoryModel) Outer(first, end int) int64 {
	if b.parts.Outer == 0 {
		return 0
	}
	return b.parts.Outer*((b.exchange.sums[end]-b.exchange.sums[first])/4) + outerScratch*b.exchange.longest
}

// vectors counts how many times a layer's gradient is in memory for exchanges.
func (b *MemoryModel) vectors() int64 { return exchangeCopies * int64(b.parts.Exchanged) }

// Exchange returns the bytes of a node's memory that the exchange between replicas of layers [first,end) of one stage takes: of gradients, or in outer
// steps.
func (b *MemoryModel) Exchange(first, end int) int64 {
	return b.vectors()*b.exchange.of(first, end) + b.Outer(first, end)
}

// ExchangeFor returns about the same for any stage in a pipeline of so many, and never less: bytes, and what its layers add, as prefixes. Where stages
// are small all of their layers do; else the first and the last one, what they take beyond others.
func (b *MemoryModel) ExchangeFor(stages int) (bytes int64, sums []int64) {
	sums = make([]int64, len(b.exchange.sums))
	if b.parts.Outer > 0 { // then no gradients
		for l, sum := range b.exchange.sums {
			sums[l] = b.parts.Outer * (sum / 4)
		}
		return outerScratch * b.exchange.longest, sums
	}
	if n := len(sums) - 1; b.exchange.sums[n]/int64(stages) <= b.exchange.window {
		for l, sum := range b.exchange.sums {
			sums[l] = b.vectors() * sum
		}
		return 0, sums
	}
	for l := 1; l < len(sums); l++ {
		sums[l] = b.vectors() * b.exchange.first
	}
	sums[len(sums)-1] += b.vectors() * b.exchange.last
	return b.vectors() * min(b.exchange.window, b.exchange.sums[len(b.exchange.sums)-1]), sums
}

// exchanges returns what a stage on a device takes of that for exchanges: those go through the memory of the node.
func (m *Model) exchanges(device, first, end int) int64 {
	if m.Devices[device].CopyBytesPerS > 0 {
		return 0
	}
	return m.Memory.Exchange(first, end)
}
