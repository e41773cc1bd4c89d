package model

import "pnode/kernels"

// Segment is one of Count equal parts of every sequence of a micro-batch: its positions
// [Index*T/Count, (Index+1)*T/Count). The zero value is the whole sequence.
//
// A slot whose passes go by segments has all of its micro-batch's activations: a segment
// attends to the keys and values of those before it there, and its backward adds to their
// gradients. The forwards of a slot come in ascending order of segments, the BackwardInputs in
// descending order, and one BackwardWeight for all rows behind them, so that every sum has the
// terms and the order that it has without segments, and losses and gradients have the same bits.
type Segment struct{ Index, Count int }

// stretch is the part of each sequence that a pass takes: the positions [from,to).
type stretch struct{ batch, context, from, to int }

// whole is all of a micro-batch.
func (b *builder) whole() stretch {
	return stretch{batch: b.batch, context: b.model.Context, to: b.model.Context}
}

// whole reports whether the stretch is all there is.
func (p stretch) whole() bool { return p.from == 0 && p.to == p.context }

// of is a segment of a whole.
func (p stretch) of(g Segment) stretch {
	if g.Count > 1 {
		p.from, p.to = g.Index*p.context/g.Count, (g.Index+1)*p.context/g.Count
	}
	return p
}

// each calls f with the rows of the stretch: all at once, or those of one sequence after the
// other.
func (p stretch) each(f func(span)) {
	s := span{n: p.batch * p.context, all: p.batch * p.context}
	if p.whole() {
		f(s)
		return
	}
	s.n = p.to - p.from
	for b := range p.batch {
		if s.first = b*p.context + p.from; s.n > 0 {
			f(s)
		}
	}
}

// span are rows [first, first+n) of a tensor with that many rows in all.
type span struct{ first, n, all int }

// of is the span of a tensor; nothing of one that is absent.
func (s span) of(v kernels.View) kernels.View {
	width := v.Len / s.all
	return v.Slice(s.first*width, s.n*width)
}

// position is the first one of the span, and how many rows follow each other in a sequence.
func (s span) position(context int) (first, n int) { return s.first % context, min(s.n, context) }
