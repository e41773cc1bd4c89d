package pipeline

import (
	"log/slog"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// codecSteps is how many steps lie between two words in the log on what a codec costs.
const codecSteps = 50

// CodecUse is how the boundary tensors that a stage sent to a neighbour were written.
type CodecUse struct {
	Messages int
	// FellBack of them did not fit the boundary's codec and took a better one.
	FellBack int
	// RelError is the largest relative error of a message, as its sender measured it: the
	// root of the summed squares of what the other end gets wrong, over that of the tensor.
	RelError float64
}

func (u *CodecUse) add(e wire.Encoded) {
	u.Messages++
	if e.Refused != 0 { // NaN too
		u.FellBack++
	}
	u.RelError = max(u.RelError, e.RelError)
}

// Plus is the use of both.
func (u CodecUse) Plus(v CodecUse) CodecUse {
	return CodecUse{u.Messages + v.Messages, u.FellBack + v.FellBack, max(u.RelError, v.RelError)}
}

// sent is where messages of a kind are counted.
func (t *StageTimes) sent(k wire.Kind) *CodecUse {
	if k == wire.Gradient {
		return &t.Back
	}
	return &t.Forth
}

// tally adds up what a stage sent in a step, and every codecSteps steps logs it for each link
// on which tensors are rounded.
func (h *holding) tally(log *slog.Logger, step plan.Step) {
	h.sentForth, h.sentBack = h.sentForth.Plus(h.times.Forth), h.sentBack.Plus(h.times.Back)
	if step%codecSteps != 0 {
		return
	}
	h.tell(log, step, h.sentForth, h.Stage, h.Stage+1)
	h.tell(log, step, h.sentBack, h.Stage-1, h.Stage-1)
	h.sentForth, h.sentBack = CodecUse{}, CodecUse{}
}

// tell logs what was sent to another stage over the boundary behind a stage.
func (h *holding) tell(log *slog.Logger, step plan.Step, use CodecUse, boundary, to plan.Stage) {
	if use.Messages == 0 || h.codecs[boundary] == wire.F32 {
		return
	}
	log.Info("rounded what crosses a boundary", "step", step, "replica", h.Replica, "from", h.Stage, "to", to,
		"peer", h.pipe.Stages[to].Peer, "codec", h.codecs[boundary], "messages", use.Messages, "fell_back", use.FellBack, "rel_error", use.RelError)
}
