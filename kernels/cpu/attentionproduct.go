package cpu

import "unsafe"

// triangle says what a product has of the pairs of a block of queries and a chunk of keys:
// query r sees the keys before+r and earlier. What lies beyond is left out by whole tiles.
type triangle int

const (
	pairsOut      triangle = iota + 1 // c is [queries,keys]
	keysSummed                        // a is [queries,keys], k the keys
	queriesSummed                     // a is [keys,queries], k the queries
)

// blockProduct is c[rows,cols] (+)= a[rows,k] * B[k,cols], with B in panels of nr columns
// that are panel floats apart. a and c have room for whole tiles. In pairs, k counts numbers, of which an
// odd one is followed by zero or meets it, and a and B are of pairs.
type blockProduct struct {
	of            triangle
	before        int
	rows, cols, k int
	a             []float32
	aRow, aCol    int
	panels        []float32
	panel         int
	c             []float32
	cRow          int
	accumulate    bool
}

// tiles are `count` tiles below each other that have [from, to) of k in common.
type tiles struct{ first, count, from, to int }

// tilesFrom gives the next tiles from tile `first` of the column j on; none have count 0.
func (p *blockProduct) tilesFrom(first, j, mr int) tiles {
	t := tiles{first: first, count: max(0, blocks(p.rows, mr)-first), to: p.k}
	top := first * mr
	switch p.of {
	case pairsOut: // the rows above see none of the columns
		if hidden := max(0, j-p.before) / mr; hidden > first {
			t.count -= hidden - first
			t.first = hidden
		}
	case keysSummed:
		if to := max(0, p.before+top+mr); to < p.k {
			t.to, t.count = to, min(t.count, 1)
		}
	case queriesSummed:
		if t.from = max(0, top-p.before); t.from > 0 {
			t.count = min(t.count, 1)
		} else {
			t.count = min(t.count, p.before/mr+1-first)
		}
	}
	return t
}

func (t *attentionTask) multiply(p blockProduct) {
	mr, nr := t.micro.mr, t.micro.nr
	args := &t.w.tile
	*args = tile{ARow: p.aRow, ACol: p.aCol, AStep: mr * p.aRow, Init: &t.zero[0], CRow: p.cRow}
	if p.accumulate {
		args.Accumulate = 1
	}
	for j := 0; j < p.cols; j += nr {
		panel := p.panels[j/nr*p.panel:]
		for next := p.tilesFrom(0, j, mr); next.count > 0; next = p.tilesFrom(next.first+next.count, j, mr) {
			from, to := next.from/t.numbers, t.elements(next.to)
			args.K, args.Count, args.B = to-from, next.count, &panel[from*nr]
			args.A, args.C = &p.a[next.first*mr*p.aRow+from*p.aCol], &p.c[next.first*mr*p.cRow+j]
			args.Next, args.NextStep = t.w.ahead.next(args.Count * (args.K / tileRound))
			if args.Next == 0 {
				args.Next = uintptr(unsafe.Pointer(&t.zero[0]))
			}
			t.micro.multiply(args)
		}
	}
}
