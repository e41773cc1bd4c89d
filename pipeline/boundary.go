package pipeline

import (
	"fmt"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// boundaryCodecs are those of the boundaries of a pipeline, each named by the stage before it.
func boundaryCodecs(pipe plan.Pipeline) ([]wire.Codec, error) {
	codecs := make([]wire.Codec, len(pipe.Stages))
	for s, place := range pipe.Stages {
		codecs[s] = wire.F32
		if place.Codec == "" {
			continue
		}
		var err error
		if codecs[s], err = wire.ParseCodec(place.Codec); err != nil {
			return nil, fmt.Errorf("%w: boundary behind stage %d: %w", ErrBadConfig, s, err)
		}
	}
	return codecs, nil
}

// crossing gives the codec of the boundary that a message goes over, and the noise that
// rounds it: the same for this tensor under every plan that cuts the model there.
func (w *Worker) crossing(h *holding, tag wire.Tag) (wire.Codec, wire.Noise) {
	behind := tag.Stage // the stage behind the boundary
	if tag.Kind == wire.Gradient {
		behind = h.Stage
	}
	c := wire.Crossing{
		Step: tag.Step, Micro: plan.Micro(tag.Index),
		Layer: h.pipe.Stages[behind].Layers.First, Back: tag.Kind == wire.Gradient,
	}
	return h.codecs[behind-1], wire.NoiseOf(w.cfg.Run.Train.Seed, c)
}
