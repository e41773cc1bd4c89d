package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Read fills dst with the parameters of a layer, which its state begins with. Its chunks are here afterwards.
func (c *Checkpointer) Read(ctx context.Context, l consensus.LayerRef, dst []byte) error {
	if l.SizeBytes < int64(len(dst)) {
		return fmt.Errorf("checkpointer: layer %d was saved with %d bytes, the parameters of this model have %d", l.Layer, l.SizeBytes, len(dst))
	}
	return c.stream(ctx, l, &only{&fixedWriter{rest: dst}, int64(len(dst))})
}

func (c *Checkpointer) stream(ctx context.Context, l consensus.LayerRef, dst io.Writer) error {
	if err := c.Fetcher.Ensure(ctx, l.Chunks, l.Holders); err != nil {
		return c.unread(l, err)
	}
	for _, h := range l.Chunks {
		one := []plan.Hash{h}
		err := c.Store.ReadLayer(ctx, one, dst)
		if errors.Is(err, checkpoint.ErrCorrupt) { // it was moved away, and nothing of it was written: others may have it whole
			if err = c.Fetcher.Ensure(ctx, one, l.Holders); err == nil {
				err = c.Store.ReadLayer(ctx, one, dst)
			}
		}
		if err != nil {
			return c.unread(l, err)
		}
	}
	return nil
}

// LackError says that a layer is not whole here, and that no node that is up gives what is missing. It wraps ErrNoChunks, and why each
// node that was asked gave none.
type LackError struct {
	Layer int
	// Held: this node is to have the layer, as the log knows, so that its copy is damaged or missing.
	Held bool
	// Holders are the names of the others that have had a copy, and which of them are leaving or gone.
	Holders []string
	cause   error
}

func (e LackError) Error() string {
	is, from := "is not here", "any node that is up"
	if e.Held {
		is = "is damaged or missing here"
	}
	if len(e.Holders) > 0 {
		from = strings.Join(e.Holders, ", ") + " or another node that is up"
	}
	return fmt.Sprintf("checkpointer: the state of layer %d %s and cannot be had from %s; start a node that holds a copy", e.Layer, is, from)
}

// LackedLayer returns the layer.
func (e LackError) LackedLayer() int { return e.Layer }

// Unwrap returns the cause, which names peers and chunks.
func (e LackError) Unwrap() error { return e.cause }

// unread returns the error of a layer whose state could not be read. Of what is lacking the log has the chunks and peers.
func (c *Checkpointer) unread(l consensus.LayerRef, err error) error {
	if !errors.Is(err, ErrNoChunks) {
		return fmt.Errorf("checkpointer: state of layer %d: %w", l.Layer, err)
	}
	c.Log.Info("chunks of a layer cannot be had", "layer", l.Layer, "cause", err)
	return LackError{Layer: l.Layer, Held: l.StoredBy(c.Self), Holders: c.others(l), cause: err}
}

// others returns the names of the other holders of a layer, and which of them are leaving or gone.
func (c *Checkpointer) others(l consensus.LayerRef) (names []string) {
	state := c.Consensus.State()
	for _, h := range l.Holders {
		name := state.NameOf(h)
		switch m, _ := state.Member(h); {
		case h == c.Self:
			continue
		case m.State == consensus.Draining:
			name += " (which is leaving)"
		case m.State == consensus.Gone:
			name += " (which is gone)"
		}
		names = append(names, name)
	}
	return names
}

// layersAt returns the layers saved at a step: by the replicated state, or by a local manifest
// when the state has moved on.
func (c *Checkpointer) layersAt(step plan.Step) ([]consensus.LayerRef, error) {
	var layers []consensus.LayerRef
	state := c.Consensus.State()
	for _, c := range consensus.Checkpoints(state) {
		if step > 0 && c.Step == step {
			return c.Layers, nil
		}
	}
	switch {
	case step > 0:
		m, err := c.Store.Manifest(step)
		if err != nil {
			return nil, fmt.Errorf("checkpointer: checkpoint of step %d: %w", step, err)
		}
		layers = refs(m.Layers)
	case state.Run == nil || state.Run.Init == nil:
		return nil, errors.New("checkpointer: the run starts from no weights")
	default:
		for i, l := range state.Run.Init.Layers {
			layers = append(layers, consensus.LayerRef{Layer: i, SizeBytes: l.SizeBytes, Chunks: l.Chunks})
		}
	}
	return layers, nil
}

// ownAt returns what a replica had for itself at a step, as layersAt does.
func (c *Checkpointer) ownAt(own plan.Own) (layers []consensus.LayerRef, err error) {
	for _, c := range consensus.Checkpoints(c.Consensus.State()) {
		for _, o := range c.Own {
			if c.Step == own.Step && o.Replica == own.Replica {
				return o.Layers, nil
			}
		}
	}
	m, err := c.Store.Manifest(own.Step)
	if err != nil {
		return nil, fmt.Errorf("checkpointer: checkpoint of step %d: %w", own.Step, err)
	}
	for _, o := range m.Own {
		if o.Replica == own.Replica {
			layers = refs(o.Layers)
		}
	}
	return layers, nil
}

// refs returns the layers of a manifest as the log has them.
func refs(states []checkpoint.LayerState) (layers []consensus.LayerRef) {
	for _, l := range states {
		layers = append(layers, consensus.LayerRef{Layer: l.Layer, SizeBytes: l.SizeBytes, Chunks: l.Chunks, Holders: l.Holders})
	}
	return layers
}

// only writes the first bytes and drops the others.
type only struct {
	io.Writer
	left int64
}

func (w *only) Write(p []byte) (int, error) {
	n := int(min(int64(len(p)), w.left))
	w.left -= int64(n)
	if n, err := w.Writer.Write(p[:n]); err != nil {
		return n, err
	}
	return len(p), nil
}

// without drops the first bytes and writes the others.
type without struct {
	io.Writer
	first int64
}

func (w *without) Write(p []byte) (int, error) {
	n := int(min(int64(len(p)), w.first))
	w.first -= int64(n)
	if n, err := w.Writer.Write(p[n:]); err != nil {
		return n, err
	}
	return len(p), nil
}

// fixedWriter fills a slice and refuses what does not fit.
type fixedWriter struct{ rest []byte }

func (w *fixedWriter) Write(p []byte) (int, error) {
	if len(p) > len(w.rest) {
		return 0, fmt.Errorf("checkpointer: %d bytes more than the layer holds", len(p)-len(w.rest))
	}
	n := copy(w.rest, p)
	w.rest = w.rest[n:]
	return n, nil
}
