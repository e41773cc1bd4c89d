package pipeline

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"pnode/kernels"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// faulty returns what a peer did wrong with what it owed in a step.
func faulty(kind plan.FaultKind, accused plan.PeerID, step plan.Step, format string, args ...any) error {
	return &plan.Fault{Accused: accused, Kind: kind, Step: step, Detail: fmt.Sprintf(format, args...)}
}

// accusing has the fault of whom a message is from by the plan accuse who brought it.
func accusing(err error, from, by plan.PeerID) error {
	if fault := (*plan.Fault)(nil); errors.As(err, &fault) && fault.Accused == from {
		fault.Accused = by
	}
	return err
}

// describe returns what a message carries, in plain words.
func (p *program) describe(t wire.Tag) string {
	switch t.Kind {
	case wire.Activation, wire.Gradient:
		from, what := t.Stage-1, "activations"
		if t.Kind == wire.Gradient {
			from, what = t.Stage+1, "gradients"
		}
		part := p.part(p.numbered(t))
		text := fmt.Sprintf("stage %d's %s of micro-batch %d", from, what, part.micro)
		if part.Count > 1 {
			text += fmt.Sprintf(", segment %d", part.Index)
		}
		if len(p.plan.Replicas) > 1 {
			text = fmt.Sprintf("replica %d %s", t.Replica, text)
		}
		return text
	case wire.KindReport:
		return fmt.Sprintf("the report of replica %d stage %d", t.Replica, t.Stage)
	case wire.KindCommit:
		return "the coordinator's commit"
	default:
		return collective.Describe(t)
	}
}

// scales reports whether loss scaling may take gradients out of bounds that a stage of a replica computes:
// those that come from one in F16, there or after it.
func (p *program) scales(pipe plan.Pipeline, stage plan.Stage) bool {
	return slices.ContainsFunc(pipe.Stages[stage:], func(place plan.Placement) bool {
		return p.spec.Train.Storage.Of(place) == model.StorageF16
	})
}

// anyScales reports whether loss scaling may take the gradient of a step out of bounds.
func (p *program) anyScales() bool {
	return slices.ContainsFunc(p.plan.Replicas, func(pipe plan.Pipeline) bool { return p.scales(pipe, 0) })
}

// unbounded reports whether the elements of a boundary's message may be out of bounds.
func (p *program) unbounded(t wire.Tag) bool {
	return t.Kind == wire.Gradient && p.scales(p.plan.Replicas[t.Replica], t.Stage+1)
}

const (
	growthBits = 4                   // by how many bits a stage may enlarge gradients, where few stages are
	allGrowth  = wire.GradientGrowth // by how many all stages may
)

// limit returns what a boundary's elements stay below when they are sent. It grows on the way, so that what
// is within bounds where it comes from does not drive an honest stage after it out of bounds:
//
//   - Forward, by wire.Activation's bound a stage. A block normalizes its input and adds to it, so what it adds
//     does not depend on how large the input is.
//   - Back, by a factor a stage, up to wire.Gradient's bound at the first one. A block's backward is linear in
//     what comes, and a residual network's about the identity.
//
// A stage that is out of bounds all the same has added or multiplied too much itself.
func (p *program) limit(t wire.Tag) float32 {
	if t.Kind == wire.Activation {
		return float32(t.Stage) * t.Kind.Bound()
	}
	between := len(p.plan.Replicas[t.Replica].Stages) - 2 // stages that both take gradients and send them
	bits := min(growthBits, allGrowth/float64(max(between, 1)))
	return t.Kind.Bound() * float32(math.Exp2(-bits*float64(t.Stage)))
}

// checkOwn returns the fault of this worker if a tensor that it has computed is out of bounds: what it
// sends would be refused. Words are those of a tensor in int8, else nil.
func (s *stepRun) checkOwn(t wire.Tag, host, words []byte, n int) error {
	return s.checkTensor(t, host, words, n, s.worker.Peer, s.limit(t))
}

// checkOther returns the fault of a peer if a tensor that came from it is out of bounds.
func (s *stepRun) checkOther(t wire.Tag, host, words []byte, n int, from plan.PeerID) error {
	return s.checkTensor(t, host, words, n, from, wire.RoundedUp(s.limit(t)))
}

func (s *stepRun) checkTensor(t wire.Tag, host, words []byte, n int, accused plan.PeerID, limit float32) (err error) {
	switch {
	case words != nil:
		err = wire.CheckInt8Elements(words, n, limit)
	default:
		err = wire.CheckElements(host, limit)
	}
	switch {
	case err == nil:
	case s.unbounded(t):
		s.overflow.note(s.worker.Peer, accused, t)
	default:
		return faulty(plan.BadTensor, accused, t.Step, "%s: %v", s.describe(t), err)
	}
	return nil
}

// decodeTensor returns the elements of a boundary's message, as it came or as float32; words where the
// device is to unpack them.
func (s *stepRun) decodeTensor(t wire.Tag, payload []byte, n int, unpacks bool, from plan.PeerID) (host, words []byte, err error) {
	if unpacks {
		words, unpacks = wire.Int8Words(payload, n)
	}
	if !unpacks {
		words = nil
		var plain bool
		if host, plain = wire.F32Elements(payload, n); !plain {
			xs := make([]float32, n)
			if _, err := wire.DecodeTensor(xs, s.spec.Model.Channels, payload); err != nil {
				return nil, nil, faulty(plan.BadFrame, from, t.Step, "%s: %v", s.describe(t), err)
			}
			host = kernels.Float32Bytes(xs)
		}
	}
	return host, words, s.checkOther(t, host, words, n, from)
}
