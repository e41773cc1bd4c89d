package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"pnode/node/bench/growth"
)

func (e environment) benchGrowthCommand() *cobra.Command {
	var o growth.Options
	c := &cobra.Command{
		Use:   "growth",
		Short: "How the cost of a step grows with tokens, layers, nodes and replicas, beside what it must be",
		Long: `Measure steps of growing sizes along these axes, and print beside each what an ideal machine would take for it. Where the
ratio grows, cost grows by more than it must:

  tokens    micro-batches of a step: the bound is operations over the rate of a large product
  sequence  tokens of a sequence: the same, attention included
  layers    blocks of the model: the same
  nodes     a pipeline with a block on each node: filling and draining, and messages over the line
  replicas  replicas that add their gradients in every step: computing, or gradients over the line
  local     replicas with local steps, which talk meanwhile: the bound stays the same

The first three compute for real, on this processor, between measurements of its products. The others are real processes
of this program with emulated devices that compute nothing and emulated lines, so that what a processor does is what nodes cost:
processor time of a node for each step, the leader's, what a node sends to agree on the run (control), the time of a first plan, and
until the first step. All nodes share this machine: where it is busy, or has few cores for many nodes, steps take
longer than on machines of their own, and processor time and messages still count.

After an interrupt the rows so far are shown.`,
		Example: `  pnode bench growth                                             three minutes on two quiet cores
  pnode bench growth --only nodes --nodes 1,8,32,64              a pipeline of up to 64 processes
  pnode bench growth --only tokens,sequence,layers --threads 1 --rounds 9
  pnode bench growth --only replicas,local --replicas 2,8,32 --json | jq .rows`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Binary, o.Progress = m.binary, m.progress
		return growth.Measure(ctx, o)
	})
	f.StringSliceVar(&o.Only, "only", nil, "`AXES` among "+strings.Join(growth.Axes(), ", ")+" (default all)")
	f.IntSliceVar(&o.Micros, "micros", nil, "`NUMBERS` of micro-batches of a step (default 1,4,16)")
	f.IntSliceVar(&o.Sequences, "sequences", nil, "`LENGTHS` of a sequence in tokens (default 128,512,2048)")
	f.IntSliceVar(&o.Blocks, "layers", nil, "`NUMBERS` of blocks (default 2,8,24)")
	f.IntSliceVar(&o.Nodes, "nodes", nil, "`NUMBERS` of nodes of a pipeline, a process each, up to 64 (default 1,4,16)")
	f.IntSliceVar(&o.Replicas, "replicas", nil, "`NUMBERS` of replicas, a process each, up to 64 (default 1,4,16)")
	f.IntVar(&o.Rounds, "rounds", 3, "measurements of each row, of 4 steps each")
	f.IntVar(&o.Threads, "threads", 0, "threads of computed rows, 0 for every core")
	return c
}
