package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pnode/node"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/ledger"
	"pnode/node/local"
	"pnode/node/recompute"
	"pnode/pipeline"
	"pnode/pipeline/meeting"
	"pnode/planner/plan"
)

// localRun is a run whose replicas trained apart, as the ledgers of its nodes have it.
type localRun struct {
	spec   plan.RunSpec
	plan   plan.Plan
	rounds []localRound
}

// localRound is the inner steps between two outer ones.
type localRound struct {
	ledger.Outer
	// losses has by replica the mean loss of each of its inner steps.
	losses [][]float64
}

// errOtherRun is wrapped by the errors about runs that cannot be laid beside a script's.
var errOtherRun = errors.New("the run did not go as it was asked for")

// trainApart trains by local nodes in a folder, and returns what their ledgers say.
func trainApart(ctx context.Context, c config.Config, binary string, progress func(string)) (r localRun, err error) {
	if err := c.Validate(); err != nil {
		return r, err
	}
	nodes, err := local.New(local.Options{Nodes: c.Local, Dir: c.Dir, Config: c, Binary: binary, Output: stepsOnly{progress}})
	if err != nil {
		return r, err
	}
	if err := nodes.Run(ctx); err != nil {
		return r, err
	}
	var all []ledger.Contents
	for _, dir := range config.NodeDirs(c.Dir) {
		contents, err := ledger.Read(dir)
		if err != nil {
			return r, err
		}
		all = append(all, contents)
	}
	spec, err := node.LoadRun(config.NodeDir(c.Dir, 0))
	if err != nil {
		return r, err
	}
	return readRun(spec, all)
}

// stepsOnly passes the steps of a run on to a line of progress.
type stepsOnly struct{ progress func(string) }

// Event takes one of the run's events.
func (s stepsOnly) Event(e api.Event) {
	if e.Kind == api.KindStep {
		s.progress(fmt.Sprintf("nodes, step %d of %d", e.Step, e.Steps))
	}
}

// Notice is for people who watch a run; here its folder has a log.
func (stepsOnly) Notice(string) {}

// readRun returns a run of one plan by the ledgers of all its nodes.
func readRun(spec plan.RunSpec, all []ledger.Contents) (r localRun, err error) {
	h, err := recompute.FromLedgers(spec, all)
	if err != nil {
		return r, err
	}
	if len(h.Plans) != 1 || h.Plans[0].Local == nil {
		return r, fmt.Errorf("%w: it had %s, want one with local steps; on a busy machine try again", errOtherRun, plan.Count(len(h.Plans), "plan"))
	}
	r.spec, r.plan = spec, h.Plans[0]
	type inner struct {
		replica plan.Replica
		step    plan.Step
	}
	said, before := map[inner]float64{}, map[plan.Step]ledger.Outer{}
	for _, c := range all {
		for _, e := range c.Entries {
			if e.Work.Replica != nil {
				said[inner{*e.Work.Replica, e.Step}] = e.Loss()
			}
		}
		for _, o := range c.Outer {
			if o.Before != nil {
				before[o.From] = o
			}
		}
	}
	at := r.plan.Start
	for _, m := range h.Outer[r.plan.Generation] {
		o, ok := before[m.From]
		if !ok || m.From != at {
			return r, fmt.Errorf("%w: no ledger has the outer step after step %d", errOtherRun, at)
		}
		round := localRound{Outer: o}
		for replica, part := range m.Parts {
			losses := make([]float64, part.Steps)
			for i := range losses {
				if losses[i], ok = said[inner{plan.Replica(replica), m.From + 1 + plan.Step(i)}]; !ok {
					return r, fmt.Errorf("%w: no ledger has step %d of replica %d", errOtherRun, m.From+1+plan.Step(i), replica)
				}
			}
			round.losses = append(round.losses, losses)
		}
		r.rounds, at = append(r.rounds, round), m.To
	}
	if at != spec.Train.Steps {
		return r, fmt.Errorf("%w: its outer steps end at step %d of %d", errOtherRun, at, spec.Train.Steps)
	}
	return r, nil
}

// each calls use for each micro-batch of a round: all of a replica's inner steps, one replica after the other.
func (r localRun) each(round localRound, use func(plan.Step, plan.Micro) error) error {
	micros := r.spec.Train.Micros
	for replica, pipe := range r.plan.Replicas {
		first := pipe.Block(round.End - round.From).First
		for place := range int64(round.Parts[replica].Steps) * int64(pipe.Micros) {
			if err := use(round.Before.Sample(first+place, micros)); err != nil {
				return err
			}
		}
	}
	return nil
}

// weights returns by replica its share of the mean of an outer step.
func (r localRun) weights(round localRound) []float32 { return meeting.Weights(r.plan, round.Merged) }

// parameters returns what the run began with: all layers' float32, without the head's copy of the embedding.
func (r localRun) parameters() (b []byte, err error) {
	m := r.spec.Model
	for l := range m.Layers() {
		layer := make([]float32, m.LayerLen(l))
		m.InitLayer(l, r.spec.Train.Seed, layer)
		if l == m.Layers()-1 {
			layer = layer[:len(layer)-m.TiedLen()]
		}
		if b, err = binary.Append(b, binary.LittleEndian, layer); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// tokens returns the sequences of all rounds in the order of each, as int32 [rows,T+1]. The text comes from a node's folder.
func (r localRun) tokens(ctx context.Context, dir string) (b []byte, err error) {
	context := r.spec.Model.Context
	err = node.WithText(dir, func(data pipeline.Data) error {
		add := func(step plan.Step, micro plan.Micro) error {
			tokens, targets, err := data.Micro(ctx, step, micro, r.spec.Train.MicroBatch)
			for ; len(tokens) > 0 && err == nil; tokens, targets = tokens[context:], targets[context:] {
				b, err = binary.Append(b, binary.LittleEndian, append(tokens[:context:context], targets[context-1]))
			}
			return err
		}
		for _, round := range r.rounds {
			if err := r.each(round, add); err != nil {
				return err
			}
		}
		return nil
	})
	return b, err
}

// torchRun describes a run to torchlocal.py.
type torchRun struct {
	Vocab    int `json:"vocab"`
	Context  int `json:"context"`
	Blocks   int `json:"blocks"`
	Heads    int `json:"heads"`
	Channels int `json:"channels"`
	// Tensors are in the order of the file Parameters.
	Tensors    []torchTensor `json:"tensors"`
	Parameters string        `json:"parameters"`
	Tokens     string        `json:"tokens"`
	Replicas   int           `json:"replicas"`
	Seed       uint64        `json:"seed"`
	// Of inner steps.
	Steps  plan.Step `json:"steps"`
	Warmup plan.Step `json:"warmup"`
	LR     float64   `json:"lr"`
	MinLR  float64   `json:"min_lr"`
	Beta1  float64   `json:"beta1"`
	Beta2  float64   `json:"beta2"`
	Eps    float64   `json:"eps"`
	Decay  float64   `json:"decay"`
	Clip   float64   `json:"clip"`
	// Of outer steps.
	Codec    string  `json:"codec"`
	Forget   float64 `json:"forget"`
	LROuter  float64 `json:"outer_lr"`
	Momentum float64 `json:"outer_momentum"`
}

// torchTensor is a tensor, and where messages have it.
type torchTensor struct {
	Name   string `json:"name"`
	Shape  []int  `json:"shape"`
	Layer  int    `json:"layer"`
	Number int    `json:"number"`
}

// torchRound asks for a round's inner steps by replica, with so many rows each, and for what the outer step is made of.
type torchRound struct {
	From plan.Step `json:"from"`
	To   plan.Step `json:"to"`
	// Delay counts the inner steps before the outer step of the round before.
	Delay   plan.Step   `json:"delay"`
	Steps   []plan.Step `json:"steps"`
	Rows    []int       `json:"rows"`
	Weights []float32   `json:"weights"`
}

// describe writes the run's files to a folder, and returns the run as the script takes it. The text comes from a node's folder.
func (r localRun) describe(ctx context.Context, folder, dir string) (d torchRun, err error) {
	d = r.torch(folder)
	parameters, err := r.parameters()
	if err != nil {
		return d, err
	}
	tokens, err := r.tokens(ctx, dir)
	if err != nil {
		return d, err
	}
	return d, errors.Join(os.WriteFile(d.Parameters, parameters, 0o600), os.WriteFile(d.Tokens, tokens, 0o600))
}

// torch returns the run as the script takes it, with its files in a folder.
func (r localRun) torch(folder string) torchRun {
	m, t := r.spec.Model, r.spec.Train
	d := torchRun{
		Vocab: m.Vocab, Context: m.Context, Blocks: m.Blocks, Heads: m.Heads, Channels: m.Channels,
		Parameters: filepath.Join(folder, "parameters"), Tokens: filepath.Join(folder, "tokens"), Replicas: len(r.plan.Replicas),
		Seed: t.Seed, Steps: t.DecayEnd(), Warmup: t.WarmupSteps, LR: t.LR, MinLR: t.MinLR, Beta1: t.Beta1, Beta2: t.Beta2, Eps: t.Eps,
		Decay: t.Decay, Clip: t.ClipNorm, Codec: r.plan.Local.Codec, Forget: 1,
	}
	d.LROuter, d.Momentum = t.OuterOptimizer(d.Codec)
	if d.Codec == "topk" {
		d.Forget = 0.95 // algorithm 1 of arXiv 2508.15706
	}
	for l := range m.Layers() {
		for i, tensor := range m.LayerTensors(l) {
			if l < m.Layers()-1 || !tensor.Decay { // the head's matrix is the embedding
				d.Tensors = append(d.Tensors, torchTensor{tensor.Name, tensor.Shape, l, i})
			}
		}
	}
	return d
}

// request returns what the script is to do in a round.
func (r localRun) request(round localRound) torchRound {
	q := torchRound{From: round.From, To: round.To, Delay: r.plan.Local.MergedAt(round.From, r.spec.Train.Steps) - round.From, Weights: r.weights(round)}
	for replica, pipe := range r.plan.Replicas {
		q.Steps = append(q.Steps, round.Parts[replica].Steps)
		q.Rows = append(q.Rows, pipe.Micros*r.spec.Train.MicroBatch)
	}
	return q
}
