package tokenizer

import "math"

// pair is two neighbouring tokens.
type pair struct{ left, right int32 }

// merge says what a pair becomes; the lowest rank goes first.
type merge struct{ rank, token int32 }

const noMerge = math.MaxInt32

// shortWord is up to how many symbols a word is merged by plain scans: below it they are
// faster than a heap, although they take n^2 steps.
const shortWord = 32

// merger merges the symbols of a word. It is scratch memory, used by one goroutine.
type merger struct {
	merges map[pair]merge

	ranks []int32 // of the pair that starts at each symbol
	nodes []node
	queue queue
}

// apply merges symbols in place and gives those that are left: as long as any pair has a
// merge, that of the lowest rank, of equal ones the leftmost.
func (m *merger) apply(symbols []int32) []int32 {
	if len(symbols) <= shortWord {
		return m.scan(symbols)
	}
	return m.drain(symbols)
}

func (m *merger) rank(left, right int32) int32 {
	if found, ok := m.merges[pair{left, right}]; ok {
		return found.rank
	}
	return noMerge
}

func (m *merger) scan(symbols []int32) []int32 {
	m.ranks = m.ranks[:0]
	for i := 1; i < len(symbols); i++ {
		m.ranks = append(m.ranks, m.rank(symbols[i-1], symbols[i]))
	}
	for {
		best, at := int32(noMerge), 0
		for i, r := range m.ranks {
			if r < best {
				best, at = r, i
			}
		}
		if best == noMerge {
			return symbols
		}
		symbols[at] = m.merges[pair{symbols[at], symbols[at+1]}].token
		symbols = append(symbols[:at+1], symbols[at+2:]...)
		m.ranks = append(m.ranks[:at], m.ranks[at+1:]...)
		if at > 0 {
			m.ranks[at-1] = m.rank(symbols[at-1], symbols[at])
		}
		if at < len(m.ranks) {
			m.ranks[at] = m.rank(symbols[at], symbols[at+1])
		}
	}
}

// node is a symbol in a list; a token of -1 has been merged into the one before.
type node struct{ token, before, after int32 }

// drain keeps the pairs in a heap. A candidate is out of date when one of its symbols has
// been merged since; that is found out when its turn comes.
func (m *merger) drain(symbols []int32) []int32 {
	m.nodes, m.queue = m.nodes[:0], m.queue[:0]
	for i, s := range symbols {
		m.nodes = append(m.nodes, node{s, int32(i) - 1, int32(i) + 1})
	}
	end := int32(len(m.nodes))
	for i := int32(1); i < end; i++ {
		m.offer(i-1, i)
	}
	for len(m.queue) > 0 {
		c := m.queue.pop()
		left := &m.nodes[c.at]
		if left.token != c.pair.left || left.after == end || m.nodes[left.after].token != c.pair.right {
			continue
		}
		right := &m.nodes[left.after]
		left.token, left.after, right.token = c.token, right.after, -1
		if left.before >= 0 {
			m.offer(left.before, c.at)
		}
		if left.after < end {
			m.nodes[left.after].before = c.at
			m.offer(c.at, left.after)
		}
	}
	symbols = symbols[:0]
	for i := int32(0); i < end; i = m.nodes[i].after {
		symbols = append(symbols, m.nodes[i].token)
	}
	return symbols
}

func (m *merger) offer(left, right int32) {
	p := pair{m.nodes[left].token, m.nodes[right].token}
	if found, ok := m.merges[p]; ok {
		m.queue.push(candidate{found, left, p})
	}
}

// candidate is a pair that may be merged; at is its left symbol.
type candidate struct {
	merge
	at   int32
	pair pair
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// queue is a binary heap. container/heap would allocate for each candidate.
type queue []candidate

func (q *queue) push(c candidate) {
	*q = append(*q, c)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (q *queue) pop() candidate {
	h := *q
	first := h[0]
	h[0] = h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if child >= len(h) || !h[child].before(h[i]) {
			return first
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
