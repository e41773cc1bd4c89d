package schedule

// straightKinds have one stage a worker and compute a backward whole.
func straightKinds() []Kind {
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
			Name: "2bp", Title: "1F1B with weight gradients in batches",
			Params: []string{"k"}, Defaults: "k=N", Memory: "p-r-1+k, N when all are one batch", Bubble: "(p-1)(f+i) when all are one batch", Source: "Rae et al., 2BP: 2-Stage Backpropagation, 2024",
			Make: func(o Options) (Schedule, error) { return TwoStage(o.Shape, o.Group) },
		},
		{
			Name: "seq1f1b", Title: "1F1B over segments of sequences",
			Params: []string{"n"}, Defaults: "n=2", segments: 2, Memory: "(p-r-1+n)/n", Bubble: "(p-1)(f+b)/n", Source: "Sun et al., Seq1F1B, 2024",
			Make: func(o Options) (Schedule, error) { return Segmented(o.Shape, orDefault(o.Segments, 2)) },
		},
	}
}

// interleavedKinds have several stages a worker, one behind the other round the workers.
func interleavedKinds() []Kind {
	return []Kind{
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
			Name: "hanayo", Title: "waves down and up the workers",
			Params: []string{"v", "d"}, Defaults: "v=2 for one wave, d=2", chunks: 2, Memory: "at most dp, p when N <= p", Bubble: "about 2(p-1)(f+b)/(3 waves) when b = 2f and N <= p", Source: "Liu et al., Hanayo, SC 2023",
			Make: Hanayo,
		},
	}
}

// chimeraKinds run pipelines in opposite directions.
func chimeraKinds() []Kind {
	return []Kind{
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
	}
}

// zeroBubbleKinds compute weight gradients where they would wait.
func zeroBubbleKinds() []Kind {
	return []Kind{
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
			Name: "zb-elastic", Title: "split backwards in the orders that end first on given links",
			Params: []string{orderParam}, Defaults: "order by times, links and caps", Memory: "by links and caps, as little as the shortest step allows", Bubble: "the least of all orders with one stage a worker, where proven",
			Source: "the goal is the automatic schedule's of Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024; the search is Split's",
			Make:   ZBElastic,
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
	}
}
