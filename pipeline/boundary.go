package pipeline

import (
	"context"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner"
)

// boundaryCodecs are those of the boundaries of a pipeline, each named by the stage before it.
func boundaryCodecs(pipe planner.Pipeline) ([]wire.Codec, error) {
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
		Step: tag.Step, Micro: planner.Micro(tag.Index),
		Layer: h.pipe.Stages[behind].Layers.First, Back: tag.Kind == wire.Gradient,
	}
	return h.codecs[behind-1], wire.NoiseOf(w.cfg.Run.Train.Seed, c)
}

// send copies rows of a boundary tensor to the host, writes them in the boundary's codec and queues them
// for the stage in its tag.
func (w *Worker) send(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) error {
	codec, noise := w.crossing(h, tag)
	if codec == wire.F32 {
		payload, host := wire.NewF32Tensor(elements(rows))
		w.read(host, rows)
		if err := w.queue.Sync(); err != nil {
			return err
		}
		return w.post(ctx, h, wire.Encoded{Codec: codec}, wire.Frame{Tag: tag, Payload: payload})
	}
	xs := make([]float32, elements(rows))
	w.read(kernels.Float32Bytes(xs), rows)
	if err := w.queue.Sync(); err != nil {
		return err
	}
	payload, used := wire.AppendTensor(nil, codec, xs, noise)
	return w.post(ctx, h, used, wire.Frame{Tag: tag, Payload: payload})
}

// post queues a boundary tensor that was written.
func (w *Worker) post(ctx context.Context, h *holding, e wire.Encoded, f wire.Frame) error {
	h.times.sent(f.Tag.Kind).add(e)
	return w.cfg.Exchange.Send(ctx, h.pipe.Stages[f.Tag.Stage].Peer, f)
}

// receive waits for the message with the tag, which a neighbour sent to this stage, and
// copies it to the device.
func (w *Worker) receive(ctx context.Context, h *holding, rows []kernels.View, tag wire.Tag) error {
	from, op := h.Stage-1, schedule.ReceiveActivation
	if tag.Kind == wire.Gradient {
		from, op = h.Stage+1, schedule.ReceiveGradient
	}
	begin := time.Now()
	payload, err := w.cfg.Exchange.Receive(ctx, h.pipe.Stages[from].Peer, tag)
	if err != nil {
		return err
	}
	h.times.Wait += time.Since(begin)
	w.note(tag.Step, h.action(op, planner.Micro(tag.Index)), begin)
	n := elements(rows)
	host, plain := wire.F32Elements(payload, n)
	if !plain {
		xs := make([]float32, n)
		if _, err := wire.DecodeTensor(xs, payload); err != nil {
			return fmt.Errorf("pipeline: %v from stage %d: %w", tag, from, err)
		}
		host = kernels.Float32Bytes(xs)
	}
	w.write(rows, host)
	return w.queue.Sync()
}
