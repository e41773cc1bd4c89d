package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Config holds the parts that a Checkpointer works with. All fields but InitialPin are needed.
type Config struct {
	Self      plan.PeerID
	Store     *checkpoint.Store
	Fetcher   Fetcher
	Consensus Consensus
	Peers     Peers
	// InitialPin names the pin of the weights that the run starts from, which the first
	// checkpoint replaces.
	InitialPin string
	Log        *slog.Logger
}

// Consensus gives the replicated state; *consensus.Node implements it.
type Consensus interface {
	State() consensus.State
	Changed() <-chan struct{}
	Propose(ctx context.Context, e consensus.Entry) error
}

// Peers exchanges requests with the members of the run.
type Peers interface {
	// Ask sends request as JSON and returns the answer.
	Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error)
	// Serve answers the requests of a protocol from now on.
	Serve(protocol string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error))
}

// Checkpointer moves layer states between stages, the local store, other nodes and the log.
// Its methods may be called concurrently.
type Checkpointer struct{ Config }

// New returns a Checkpointer that holds copies for other members from now on.
func New(c Config) *Checkpointer {
	made := &Checkpointer{c}
	c.Peers.Serve(protocolCopy, made.hold)
	return made
}

// PlanSaver saves and loads the stages of one plan. It implements pipeline.Keeper.
type PlanSaver struct {
	*Checkpointer
	plan plan.Plan
}

// For returns the PlanSaver of a plan's workers.
func (c *Checkpointer) For(p plan.Plan) PlanSaver { return PlanSaver{c, p} }

// Save stores a stage's state here, has its holder fetch a copy and reports the stage to the
// log. Without a copy the report names this node as the only holder: a checkpoint on one node
// is better than none.
func (s PlanSaver) Save(ctx context.Context, state pipeline.State) error {
	writing := s.Store.Begin()
	defer writing.Abort()
	request := copyRequest{Generation: s.plan.Generation, Step: state.Step, Replica: state.Replica, Stage: state.Stage}
	var layers []consensus.LayerRef
	for _, l := range state.Layers {
		hashes, size, err := writing.WriteLayer(ctx, l.Reader)
		if err != nil {
			return fmt.Errorf("checkpointer: save step %d layer %d: %w", state.Step, l.Layer, err)
		}
		request.Chunks = append(request.Chunks, hashes...)
		layers = append(layers, consensus.LayerRef{Layer: l.Layer, SizeBytes: size, Chunks: hashes})
	}
	if err := s.Store.Pin(request.pin(), request.Chunks); err != nil {
		return fmt.Errorf("checkpointer: save step %d: %w", state.Step, err)
	}
	holders := []plan.PeerID{s.Self}
	if holder := s.plan.Replicas[state.Replica].Stages[state.Stage].Holder; holder != "" {
		asking, cancel := context.WithTimeout(ctx, copyTimeout)
		_, err := s.Peers.Ask(asking, holder, protocolCopy, request)
		cancel()
		if err != nil {
			s.Log.Warn("no copy of this stage's state", "step", state.Step, "holder", holder, "cause", err)
		} else {
			holders = append(holders, holder)
		}
	}
	for i := range layers {
		layers[i].Holders = holders
	}
	err := s.Consensus.Propose(ctx, consensus.StageSaved{Step: state.Step, Generation: s.plan.Generation, Layers: layers})
	if err != nil {
		return fmt.Errorf("checkpointer: report step %d as saved: %w", state.Step, err)
	}
	return nil
}

// Load writes a layer's state at the plan's start step to dst. For step 0 these are the weights
// that the run starts from. It fetches chunks that are not here.
func (s PlanSaver) Load(ctx context.Context, layer int, dst io.Writer) error {
	layers, err := s.layersAt(s.plan.Start)
	if err != nil {
		return err
	}
	for _, l := range layers {
		if l.Layer == layer {
			return s.stream(ctx, l, dst)
		}
	}
	return fmt.Errorf("checkpointer: the checkpoint of step %d has no layer %d", s.plan.Start, layer)
}

// Read fills dst with a layer's state, which has to have exactly that many bytes.
func (c *Checkpointer) Read(ctx context.Context, l consensus.LayerRef, dst []byte) error {
	if l.SizeBytes != int64(len(dst)) {
		return fmt.Errorf("checkpointer: layer %d was saved with %d bytes, this model needs %d", l.Layer, l.SizeBytes, len(dst))
	}
	return c.stream(ctx, l, &fixedWriter{rest: dst})
}

func (c *Checkpointer) stream(ctx context.Context, l consensus.LayerRef, dst io.Writer) error {
	if err := c.Fetcher.Ensure(ctx, l.Chunks, l.Holders); err != nil {
		return fmt.Errorf("checkpointer: state of layer %d: %w", l.Layer, err)
	}
	return c.Store.ReadLayer(ctx, l.Chunks, dst)
}

// layersAt returns the layers saved at a step: by the replicated state, or by a local manifest
// when the state has moved on.
func (c *Checkpointer) layersAt(step plan.Step) ([]consensus.LayerRef, error) {
	var layers []consensus.LayerRef
	state := c.Consensus.State()
	switch {
	case step > 0 && state.Checkpoint.Step == step:
		return state.Checkpoint.Layers, nil
	case step > 0:
		m, err := c.Store.Manifest(step)
		if err != nil {
			return nil, fmt.Errorf("checkpointer: checkpoint of step %d: %w", step, err)
		}
		for _, l := range m.Layers {
			layers = append(layers, consensus.LayerRef{Layer: l.Layer, SizeBytes: l.SizeBytes, Chunks: l.Chunks, Holders: l.Holders})
		}
	case state.Run == nil || state.Run.Init == nil:
		return nil, errors.New("checkpointer: the run starts from no weights")
	default:
		for i, l := range state.Run.Init.Layers {
			layers = append(layers, consensus.LayerRef{Layer: i, SizeBytes: l.SizeBytes, Chunks: l.Chunks})
		}
	}
	return layers, nil
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
