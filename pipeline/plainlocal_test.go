package pipeline

import (
	"context"
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/pipeline/compress"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// blockData gives the micro-batches with the numbers that at returns.
type blockData struct {
	patterned
	micros int
	at     func(plan.Step, plan.Micro) int64
}

func (d blockData) Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	n := d.at(step, micro)
	return d.patterned.Micro(ctx, plan.Step(n/int64(d.micros))+1, plan.Micro(n%int64(d.micros)), batch)
}

// plainReplicas have replicas of a local plan by the definitions: inner steps are those of runs of one replica on one worker, and outer steps are made by
// loops over whole models.
type plainReplicas struct {
	test  *testing.T
	run   plan.RunSpec
	plan  plan.Plan // of replicas that are not cut
	codec compress.Codec
	// By layer, and what messages lack by replica and layer.
	reference, momentum [][]float32
	missed              [][][]float32
	keepers             []*memoryKeeper // by replica, with the states between inner steps
	at                  []plan.Step     // where each replica is
	unused              []int64         // micro-batches that have not counted
	out                 met
}

// plainly does the same as workers did. Their log says how many steps count.
func plainly(t *testing.T, run plan.RunSpec, p plan.Plan, made []plan.Merged) met {
	t.Helper()
	x := &plainReplicas{test: t, run: run, plan: p, out: met{made: made}}
	x.plan.Replicas = slices.Clone(p.Replicas)
	whole := cut(run, "1f1b", slices.Repeat([][]int{{0}}, len(p.Replicas))...)
	for r := range p.Replicas {
		x.plan.Replicas[r].Stages, x.plan.Replicas[r].Warmups = whole.Replicas[r].Stages, whole.Replicas[r].Warmups
	}
	var err error
	if x.codec, err = compress.Parse(p.Local.Codec); err != nil {
		t.Fatal(err)
	}
	x.reference, x.momentum, x.unused = x.vectors(), x.vectors(), make([]int64, 2*int(run.Train.Steps)*run.Train.Micros)
	for l, params := range x.reference {
		run.Model.InitRange(l, run.Train.Seed, 0, params)
	}
	for n := range x.unused {
		x.unused[n] = int64(n)
	}
	for range p.Replicas {
		x.keepers, x.missed, x.at = append(x.keepers, &memoryKeeper{}), append(x.missed, x.vectors()), append(x.at, 0)
		x.out.losses = append(x.out.losses, map[plan.Step]float64{})
	}
	for _, o := range made {
		x.round(o)
	}
	for _, k := range x.keepers {
		x.out.states = append(x.out.states, k.layers)
	}
	return x.out
}

func (x *plainReplicas) vectors() (all [][]float32) {
	for l := range x.run.Model.Layers() {
		all = append(all, make([]float32, x.run.Model.LayerLen(l)))
	}
	return all
}

// block returns what a replica takes of a round of so many steps that begins with some micro-batches unused.
func (x *plainReplicas) block(r, steps int, unused []int64) []int64 {
	return unused[steps*int(x.plan.Replicas[r].FirstMicro):][:steps*x.plan.Replicas[r].Micros]
}

// inner has a replica make inner steps up to one, on a block of the round after a step.
func (x *plainReplicas) inner(r int, after, to plan.Step, block []int64) {
	own, alone := plan.Alone(x.run, x.plan, plan.Replica(r))
	own.Train.HeldOutEvery, alone.Start = 0, x.at[r]
	pipe, at := x.plan.Replicas[r], x.at[r]
	trainBy(x.test, Config{
		Run: own, Plan: alone, First: pipe.FirstMicro,
		Data: blockData{patterned{x.run.Model.Context}, x.run.Train.Micros, func(step plan.Step, micro plan.Micro) int64 {
			return block[int(step-after-1)*pipe.Micros+int(micro-pipe.FirstMicro)]
		}},
		Keeper: from{x.keepers[r], at},
		Stop:   func() bool { at++; return at == to },
		OnStep: func(s StepResult) {
			if !s.Final {
				x.out.losses[r][s.Step] = s.Loss
			}
		},
	}, func(d kernels.Device) kernels.Device { return d })
	x.at[r] = to
}

// params returns the parameters of a layer that a replica has.
func (x *plainReplicas) params(r, layer int) []float32 {
	params := make([]float32, len(x.reference[layer]))
	if err := wire.DecodeF32(params, LayerParams(x.run.Model, layer, x.keepers[r].layers[x.at[r]][layer])); err != nil {
		x.test.Fatal(err)
	}
	return params
}

// offer adds a replica's message of a layer to the mean, with its weight.
func (x *plainReplicas) offer(mean []float32, from plan.Step, r, layer int, weight float32) {
	params := x.params(r, layer)
	for i, tensor := range x.run.Model.LayerTensors(layer) {
		if layer == x.run.Model.Layers()-1 && tensor.Off >= len(params)-x.run.Model.TiedGradLen() {
			continue // the mean of the embedding is for both
		}
		d := make([]float32, tensor.Len())
		for j := range d {
			d[j] = x.reference[layer][tensor.Off+j] - params[tensor.Off+j]
		}
		place := compress.Place{Step: from, Replica: plan.Replica(r), Layer: layer, Tensor: i}
		b, err := x.codec.Append(nil, x.missed[r][layer][tensor.Off:][:len(d)], d, wire.ReducePart.Bound(), place.Noise(x.run.Train.Seed))
		if err == nil {
			err = x.codec.Add(mean[tensor.Off:][:len(d)], weight, b, wire.RoundedUp(wire.ReducePart.Bound()))
		}
		if err != nil {
			x.test.Fatal(err)
		}
	}
}

// round has the replicas make a round that ends with an outer step.
func (x *plainReplicas) round(o plan.Merged) {
	local, last := x.plan.Local, x.run.Train.Steps
	end := local.RoundEnd(o.From, last)
	window, means, total := int(end-o.From), x.vectors(), 0.0 // every replica has a block for so many steps
	for r, part := range o.Parts {
		total += float64(int(part.Steps) * x.plan.Replicas[r].Micros)
	}
	taken, all := map[int64]bool{}, map[int64]bool{}
	for r, part := range o.Parts {
		block := x.block(r, window, x.unused)
		for i, n := range block {
			all[n], taken[n] = true, taken[n] || i < int(part.Steps)*x.plan.Replicas[r].Micros
		}
		if part.Steps > 0 {
			x.inner(r, o.From, o.From+part.Steps, block)
			for l := range means {
				x.offer(means[l], o.From, r, l, float32(float64(int(part.Steps)*x.plan.Replicas[r].Micros)/total))
			}
		}
	}
	ahead := slices.DeleteFunc(slices.Clone(x.unused), func(n int64) bool { return all[n] })
	left, late := make([][][]float32, len(o.Parts)), local.MergedAt(end, last)
	for r, part := range o.Parts {
		if part.Steps == end-o.From && late > end {
			for l := range means {
				left[r] = append(left[r], x.params(r, l))
			}
			x.inner(r, end, late, x.block(r, int(local.RoundEnd(end, last)-end), ahead))
		}
	}
	x.unused = slices.DeleteFunc(x.unused, func(n int64) bool { return taken[n] })
	x.step(means)
	for r, part := range o.Parts {
		if part.Steps > 0 {
			x.merged(r, o, left[r])
		}
	}
}

// step makes the outer step with the means of all layers.
func (x *plainReplicas) step(means [][]float32) {
	lr, mu := x.run.Train.OuterOptimizer(x.plan.Local.Codec)
	last := means[len(means)-1]
	copy(last[len(last)-x.run.Model.TiedGradLen():], means[0])
	for l, mean := range means {
		for i, d := range mean {
			u, step := x.momentum[l][i]+d, d
			if mu > 0 {
				x.momentum[l][i] = float32(mu) * u
				step += float32(float32(mu) * u)
			}
			x.reference[l][i] += float32(-float32(lr) * step)
		}
	}
}

// merged has a replica go on from an outer step: from its parameters alone, or with the inner steps since it left others.
func (x *plainReplicas) merged(r int, o plan.Merged, left [][]float32) {
	saved, now := map[int][]byte{}, map[int][]byte{}
	for l, state := range x.keepers[r].layers[x.at[r]] {
		params := slices.Clone(x.reference[l])
		moments := state[4*len(params):]
		saved[l] = append(wire.AppendF32(nil, params), moments...)
		if left != nil {
			for i, p := range x.params(r, l) {
				params[i] += p - left[l][i]
			}
			now[l] = append(wire.AppendF32(nil, params), moments...)
		}
	}
	if x.keepers[r].layers[o.To] = saved; left == nil || o.Last {
		x.at[r] = o.To
		return
	}
	x.keepers[r].layers[x.at[r]] = now
}
