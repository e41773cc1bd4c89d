package schedule

import "slices"

// Kind is a named generator. Its texts say what it costs: p workers with rank r, N
// micro-batches, v stages per worker; times f, i, w of forward, input and weight gradient
// of all of a worker's stages, b = i + w. Memory is the activations of so many
// micro-batches in all of a worker's stages. Bubble is without communication: the time
// that is added to N*(f+b).
type Kind struct {
	Name, Title string
	// Params are the names, in a Spec, of the options that it reads beside stages and
	// micro-batches, in the order of the text form; Defaults says what they are if not given.
	Params   []string
	Defaults string
	// NeedsCosts: the actions follow from costs and caps, not from a name; what Elastic
	// finds is written as 1f1b with warm-ups.
	NeedsCosts bool
	Memory     string
	Bubble     string
	Source     string
	Make       func(Options) (Schedule, error)

	chunks        int // stages per worker if not given; 0 is always one
	bidirectional bool
}

// StagesPerWorker is how many stages of each replica one worker holds.
func (k Kind) StagesPerWorker(o Options) int {
	if k.chunks > 0 && slices.Contains(k.Params, "v") {
		return orDefault(o.Chunks, k.chunks)
	}
	return max(k.chunks, 1)
}

// Replicas is how many replicas share the workers.
func (k Kind) Replicas(o Options) int {
	if k.bidirectional {
		return 2 * orDefault(o.Pairs, 1)
	}
	return 1
}

// Kinds lists all generators.
func Kinds() []Kind {
	return []Kind{
		{
			Name: "elastic", Title: "1F1B with the smallest warm-ups that hide the given links",
			NeedsCosts: true, Memory: "by links and caps", Bubble: "(p-1)(f+b); period max(slowest stage, slowest transfer) if memory allows",
			Source: "PipeMesh (TPDS 2025) is the idea; the minimum is derived in MinimalWarmups",
			Make:   func(o Options) (Schedule, error) { return Elastic(o.Shape, o.Costs, o.Caps) },
		},
		{
			Name: "gpipe", Title: "all forwards, then all backwards",
			Memory: "N", Bubble: "(p-1)(f+b)", Source: "Huang et al., GPipe, NeurIPS 2019",
			Make: func(o Options) (Schedule, error) { return GPipe(o.Shape) },
		},
		{
			Name: "1f1b", Title: "one forward, one backward",
			Memory: "p-r, or warm-up + 1 where a plan has warm-ups", Bubble: "(p-1)(f+b)", Source: "Fan et al., DAPPLE, PPoPP 2021",
			Make: func(o Options) (Schedule, error) {
				if o.Warmups != nil {
					return Warmups(o.Shape, o.Warmups)
				}
				return Depth(o.Shape, 1)
			},
		},
		{
			Name: "depth", Title: "1F1B that starts d forwards per following worker ahead",
			Params: []string{"d"}, Defaults: "d=2", Memory: "d(p-1-r)+1", Bubble: "(p-1)(f+b)", Source: "1F1B; hides messages of time c when d >= 1 + 2c/(f+b)",
			Make: func(o Options) (Schedule, error) { return Depth(o.Shape, orDefault(o.Depth, 2)) },
		},
		{
			Name: "kfkb", Title: "k forwards, then k backwards",
			Params: []string{"k"}, Defaults: "k=2", Memory: "k(p-r)", Bubble: "(p-1)(f+b)", Source: "Wang et al., Ada-Grouper, 2023",
			Make: func(o Options) (Schedule, error) { return KFKB(o.Shape, orDefault(o.Group, 2)) },
		},
		{
			Name: "interleaved", Title: "interleaved chunks, micro-batches in groups of any sizes",
			Params: []string{"v", "d", "k", "f", "b"}, Defaults: "v=2, d=2, groups of k=p", chunks: 2, Memory: "((v-1)g + d(p-1-r) + 1)/v with g the first forward group, k or of f", Bubble: "(p-1)(f+b)/v", Source: "PipeMesh, TPDS 2025",
			Make: Grouped,
		},
		{
			Name: "depth-first", Title: "interleaved chunks, groups of p micro-batches",
			Params: []string{"v"}, Defaults: "v=2", chunks: 2, Memory: "((v+1)p - 2r - 1)/v", Bubble: "(p-1)(f+b)/v", Source: "Narayanan et al., Megatron-LM, SC 2021",
			Make: func(o Options) (Schedule, error) {
				o.Group, o.Depth, o.Forward, o.Backward = 0, 0, nil, nil
				return Grouped(o)
			},
		},
		{
			Name: "breadth-first", Title: "interleaved chunks, one group of all micro-batches",
			Params: []string{"v"}, Defaults: "v=2", chunks: 2, Memory: "N", Bubble: "(p-1)(f+b)/v", Source: "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023; Fold3D, TPDS 2023",
			Make: func(o Options) (Schedule, error) {
				o.Group, o.Depth, o.Forward, o.Backward = max(o.Micros, 1), 0, nil, nil
				return Grouped(o)
			},
		},
		{
			Name: "chimera", Title: "pairs of pipelines in opposite directions, a copy of the model each",
			Params: []string{"pairs"}, Defaults: "pairs=1", bidirectional: true, Memory: "p/2+1 to p", Bubble: "(p/pairs-2)f when f = b and N is a multiple of p; 2(p-2)f when b = 2f, pairs = 1 and N = p", Source: "Li and Hoefler, Chimera, SC 2021",
			Make: Chimera,
		},
		{
			Name: "chimera-doubling", Title: "Chimera with two forwards in one slot",
			Params: []string{"pairs"}, Defaults: "pairs=1", bidirectional: true, Memory: "up to 2p", Bubble: "at most 2(p-2)f when b = 2f and N is a multiple of 2p", Source: "Li and Hoefler, Chimera, SC 2021, section 3.5",
			Make: ChimeraDoubled,
		},
		{
			Name: "chimera-halving", Title: "Chimera with the backward of a micro-batch in two halves, which are what it counts",
			Params: []string{"pairs"}, Defaults: "pairs=1", bidirectional: true, Memory: "up to 2p halves", Bubble: "at most 2(p-2)f of a half when b = 2f and N is a multiple of 2p", Source: "Li and Hoefler, Chimera, SC 2021, section 3.5",
			Make: ChimeraDoubled,
		},
		{
			Name: "zb-h1", Title: "1F1B with weight gradients in the bubble",
			Memory: "p", Bubble: "(p-1)(f+i-w)", Source: "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
			Make: func(o Options) (Schedule, error) { return ZBH1(o.Shape) },
		},
		{
			Name: "zb-h2", Title: "1F1B of twice the warm-up with weight gradients in the bubble",
			Memory: "2p-1", Bubble: "(p-1)(f+i-2w) between a worker's first and last action", Source: "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
			Make: func(o Options) (Schedule, error) { return ZBH2(o.Shape) },
		},
		{
			Name: "zb-v", Title: "two chunks in a V with weight gradients in the bubble",
			chunks: 2, Memory: "p", Bubble: "none between a worker's first and last action when f = i = w", Source: "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024",
			Make: func(o Options) (Schedule, error) { return ZBV(o.Shape) },
		},
		{
			Name: "v-half", Title: "two chunks in a V in half the memory",
			chunks: 2, Memory: "(p+2)/2", Bubble: "(p-1)(f+b)/2 when f = i = w", Source: "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024",
			Make: func(o Options) (Schedule, error) { return VHalf(o.Shape) },
		},
		{
			Name: "v-min", Title: "two chunks in a V in a third of the memory",
			chunks: 2, Memory: "(p+4)/3", Bubble: "about 2(p-1)(f+b)/3 when f = i = w", Source: "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024",
			Make: func(o Options) (Schedule, error) { return VMin(o.Shape) },
		},
		{
			Name: "2bp", Title: "1F1B with weight gradients in batches",
			Params: []string{"k"}, Defaults: "k=N", Memory: "p-r-1+k, N when all are one batch", Bubble: "(p-1)(f+i) when all are one batch", Source: "Rae et al., 2BP: 2-Stage Backpropagation, 2024",
			Make: func(o Options) (Schedule, error) { return TwoStage(o.Shape, o.Group) },
		},
		{
			Name: "seq1f1b", Title: "1F1B over segments of sequences",
			Params: []string{"n"}, Defaults: "n=2", Memory: "(p-r-1+n)/n", Bubble: "(p-1)(f+b)/n", Source: "Sun et al., Seq1F1B, 2024",
			Make: func(o Options) (Schedule, error) { return Segmented(o.Shape, orDefault(o.Segments, 2)) },
		},
		{
			Name: "hanayo", Title: "waves down and up the workers",
			Params: []string{"v", "d"}, Defaults: "v=2 for one wave, d=2", chunks: 2, Memory: "at most dp, p when N <= p", Bubble: "about 2(p-1)(f+b)/(3 waves) when b = 2f and N <= p", Source: "Liu et al., Hanayo, SC 2023",
			Make: Hanayo,
		},
	}
}

// KindNamed finds a kind.
func KindNamed(name string) (Kind, bool) {
	all := Kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return all[i], true
}
