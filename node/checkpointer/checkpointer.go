package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Config holds the parts that a Checkpointer works with. All fields but InitialPin, Awaited and Answers are needed.
type Config struct {
	Self      plan.PeerID
	Store     *checkpoint.Store
	Fetcher   Fetcher
	Consensus Consensus
	Peers     Peers
	// InitialPin names the pin of the weights that the run starts from, which the first
	// checkpoint replaces.
	InitialPin string
	// Awaited returns the steps of replaced checkpoints that stay: they are being brought to a member, or read. nil: none.
	Awaited func() []plan.Step
	// Answers reports whether a member answers a question at once, by whatever way there is. nil: nobody is asked.
	Answers func(context.Context, plan.PeerID) bool
	Log     *slog.Logger
}

// Consensus gives the replicated state; *consensus.Node implements it.
type Consensus interface {
	consensus.Log
	Propose(ctx context.Context, e consensus.Entry) error
}

// Peers exchanges requests with the members of the run.
type Peers interface {
	// Ask sends request as JSON and returns the answer. The error wraps ErrRemote where the member has answered with one.
	Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error)
	// Serve answers the requests of a protocol from now on.
	Serve(protocol string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error))
}

// Checkpointer moves layer states between stages, the local store, other nodes and the log.
// Its methods may be called concurrently.
type Checkpointer struct {
	Config
	copying atomic.Int32            // checkpoints and copies of stages here that are under way
	turns   chan struct{}           // receives a value when the first begins and when the last ends
	cadence atomic.Pointer[Cadence] // of the newest generation here
	leftOut atomic.Uint64           // see LeftOut
	waiting waiting                 // copies that others ask for
}

// New returns a Checkpointer that holds copies for other members from now on.
func New(c Config) *Checkpointer {
	made := &Checkpointer{Config: c, turns: make(chan struct{}, 1)}
	c.Peers.Serve(protocolCopy, made.hold)
	return made
}

// Copying reports whether checkpoints of stages here, or copies of them, are under way that end with the plan.
func (c *Checkpointer) Copying() bool { return c.copying.Load() > 0 }

// LeftOut returns the newest step of which a stage here was not saved for want of room on the disk; 0 once a later one was, and with a new plan.
func (c *Checkpointer) LeftOut() plan.Step { return plan.Step(c.leftOut.Load()) }

// Turned receives a value when Copying has changed. It has one reader.
func (c *Checkpointer) Turned() <-chan struct{} { return c.turns }

// count notes that something of what Copying reports begins, until done is called.
func (c *Checkpointer) count() (done func()) {
	turn := func(by, edge int32) {
		if c.copying.Add(by) == edge {
			select {
			case c.turns <- struct{}{}:
			default: // it was not read yet
			}
		}
	}
	turn(1, 1)
	return func() { turn(-1, 0) }
}

// PlanSaver saves and loads the stages of one plan. It implements pipeline.Keeper.
type PlanSaver struct {
	*Checkpointer
	plan     plan.Plan
	replica  plan.Replica // whose state Load gives where replicas begin with their own
	salvages bool         // what the plan's end has left
	// moments is closed when Fetch has no more of them on their way; nil: it had none.
	moments <-chan struct{}
}

// For returns the PlanSaver of a plan's workers.
func (c *Checkpointer) For(p plan.Plan) PlanSaver { return PlanSaver{Checkpointer: c, plan: p} }

// Salvage returns the saver of what the workers of a plan have left in memory at its end.
func (c *Checkpointer) Salvage(p plan.Plan) PlanSaver {
	return PlanSaver{Checkpointer: c, plan: p, salvages: true}
}

// Of returns the saver of one of the plan's replicas.
func (s PlanSaver) Of(r plan.Replica) PlanSaver {
	s.replica = r
	return s
}

// Save stores a stage's state here, has its holder fetch a copy and reports the stage to the
// log. A save for which the disk has no room is left out, unless it is the plan's last one. Without a copy the report
// names this node as the only holder: a checkpoint on one node is better than none.
//
// Where another plan is to follow, all wait for it: the stage is reported as soon as it can be read here, before it is durable, and whoever
// gets its layers next fetches them directly. Where the run ends or stops it is durable before. Else it is made durable with the checkpoint's manifest, and the log told so: Commit and Stored. The holder gets a copy only if no plan comes, and none of what is
// salvaged: the next plan's holders get theirs. The run's first checkpoint has copies in any case: there is none to go
// back to. Where replicas make local steps each saves what it has, in common with the others and for itself, and no copy is made: what is in
// common is with all of them.
func (s PlanSaver) Save(ctx context.Context, state pipeline.State) error {
	apart := s.plan.Local != nil
	pause := s.salvages || state.Last && (apart && s.followed(state.Step) || !apart && s.pauses(ctx))
	if state.Replica != 0 && !pause && !apart {
		return nil
	}
	if !pause {
		defer s.count()()
	}
	now := s.Consensus.State()
	run, writing, prompt := now.Run, s.Store.Begin(), pause && now.Checkpoint.Step > 0
	inMemory := prompt && run != nil && !now.StopWanted && state.Step != run.Train.Steps // what nothing follows is lost with its process for good
	if inMemory {
		writing = s.Store.BeginBehind()
	}
	defer writing.Abort()
	request := copyRequest{Generation: s.plan.Generation, Step: state.Step, Replica: state.Replica, Stage: state.Stage, own: state.Own}
	var layers []consensus.LayerRef
	var err error
	ahead, stop := readAhead(ctx, state.Layers)
	defer stop()
	for _, l := range ahead {
		ref, cut := consensus.LayerRef{Layer: l.Layer}, checkpoint.Cut{}
		if run != nil && l.Layer < run.Model.Layers() {
			cut = s.cutOf(*run, state.Own, l.Layer)
		}
		if ref.Chunks, ref.SizeBytes, err = writing.WriteLayer(ctx, l.Reader, cut); err != nil {
			err = fmt.Errorf("layer %d: %w", l.Layer, err)
			break
		}
		request.Chunks = append(request.Chunks, ref.Chunks...)
		layers = append(layers, ref)
	}
	if err == nil && !inMemory {
		err = s.Store.Pin(request.pin(), request.Chunks)
	}
	if errors.Is(err, checkpoint.ErrDiskFull) && !state.Last && !s.salvages {
		s.leftOut.Store(uint64(state.Step))
		s.Log.Warn("no room for a checkpoint: training goes on, and the next one is tried again", "step", state.Step, "cause", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("checkpointer: save step %d: %w", state.Step, err)
	}
	if old := s.leftOut.Load(); old < uint64(state.Step) { // another stage here may lack the room for this very step
		s.leftOut.CompareAndSwap(old, 0)
	}
	saved := consensus.StageSaved{Step: state.Step, Generation: s.plan.Generation, Last: state.Last, Layers: layers}
	if state.Own {
		saved.Own = &state.Replica
	}
	if pause && (s.salvages || prompt) {
		if inMemory {
			saved.Unstored = s.processEpoch()
		}
		err := s.report(ctx, saved, s.Self)
		refused := inMemory && errors.Is(err, consensus.ErrRejected) && !errors.Is(err, consensus.ErrStale)
		if saved.Unstored = 0; refused { // a stop came before the report, of which this node may not know yet
			err = s.report(ctx, saved, s.Self)
		}
		if inMemory && !errors.Is(err, consensus.ErrRejected) { // not before: all wait for the report. Where nobody said whether it was taken, the log may count on the chunks
			if err := s.Store.Pin(request.pin(), request.Chunks); err != nil {
				s.Log.Warn("what this node computes of the newest checkpoint may be swept", "step", state.Step, "cause", err)
			}
		}
		if errors.Is(err, consensus.ErrStale) { // the log had these layers from another replica, and has the next plan
			return nil
		}
		if err != nil || s.salvages || apart || s.planFollows(ctx) {
			return err
		}
	}
	patience := slowCopyTimeout
	if state.Last || s.Consensus.State().Run.Train.CheckpointEvery > 0 {
		patience = copyTimeout
	}
	holder := plan.PeerID("")
	if !apart {
		holder = s.copy(ctx, request, patience)
	}
	err = s.reportCopy(ctx, saved, holder)
	if errors.Is(err, consensus.ErrStale) && !state.Last { // a later step is saved, or the plan is over: nothing is lost
		s.Log.Info("a checkpoint came too late", "step", state.Step, "cause", err)
		return nil
	}
	return err
}

// pauses reports whether the plan ends for another one to follow, rather than with the run. What the coordinator
// knows of may reach the log here a moment later.
func (s PlanSaver) pauses(ctx context.Context) (pauses bool) {
	ctx, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	err := consensus.Await(ctx, s.Consensus, func(now consensus.State) bool {
		pauses = !now.StopWanted && (now.Paused() || now.Plan.Generation != s.plan.Generation)
		return pauses || now.StopWanted
	})
	return err == nil && pauses
}

// followed reports whether another plan follows on one with local steps that ends with a step.
func (s PlanSaver) followed(step plan.Step) bool {
	now := s.Consensus.State()
	return now.Run != nil && !now.StopWanted && step < now.Run.Train.Steps
}

// planFollows blocks until the plan of this saver ends, which ends ctx. It returns false when that takes longer than a plan
// that was searched for ahead.
func (s PlanSaver) planFollows(ctx context.Context) bool {
	late := time.NewTimer(planPatience)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-late.C:
		return false
	}
}

// processEpoch returns the epoch of this process, as the log has it.
func (c *Checkpointer) processEpoch() uint64 {
	m, _ := c.Consensus.State().Member(c.Self)
	return m.ProcessEpoch
}

// report has the log take a stage as saved, with its holders. What is to count as stored here is made durable first.
func (c *Checkpointer) report(ctx context.Context, saved consensus.StageSaved, holders ...plan.PeerID) error {
	saved.Layers = slices.Clone(saved.Layers)
	for i, l := range saved.Layers {
		saved.Layers[i].Holders, saved.Layers[i].Whole, saved.Layers[i].Unstored = holders, 0, nil // the log counts these
		if saved.Unstored == 0 && slices.Contains(holders, c.Self) {
			if err := c.Store.Settle(l.Chunks); err != nil {
				return fmt.Errorf("checkpointer: store step %d: layer %d: %w", saved.Step, l.Layer, err)
			}
		}
	}
	if err := c.Consensus.Propose(ctx, saved); err != nil {
		return fmt.Errorf("checkpointer: report step %d as saved: %w", saved.Step, err)
	}
	return nil
}

// Stored makes those layers of a state's newest checkpoint durable that the log has in this node's memory alone, and tells the log so, and of
// one that is not complete yet as well. What an earlier process had in memory counts where it is here.
func (c *Checkpointer) Stored(ctx context.Context, state consensus.State) (err error) {
	for _, made := range append([]consensus.Checkpoint{state.Checkpoint}, state.Pending...) {
		err = errors.Join(err, c.stored(ctx, made))
	}
	return err
}

func (c *Checkpointer) stored(ctx context.Context, made consensus.Checkpoint) error {
	err := c.storedOf(ctx, made, nil, made.Layers)
	for _, o := range made.Own {
		err = errors.Join(err, c.storedOf(ctx, made, &o.Replica, o.Layers))
	}
	return err
}

// storedOf does it for layers of a checkpoint: those that all have in common, or a replica's own.
func (c *Checkpointer) storedOf(ctx context.Context, made consensus.Checkpoint, own *plan.Replica, layers []consensus.LayerRef) error {
	saved := consensus.StageSaved{Step: made.Step, Generation: made.Generation, Last: made.Last, Own: own} // as reported: the checkpoint may not be complete
	for _, l := range layers {
		if slices.Contains(l.Holders, c.Self) && !l.StoredBy(c.Self) && len(c.Fetcher.Missing(l.Chunks)) == 0 {
			saved.Layers = append(saved.Layers, l)
		}
	}
	if len(saved.Layers) == 0 {
		return nil
	}
	for _, l := range saved.Layers {
		if err := c.Store.Settle(l.Chunks); err != nil {
			return fmt.Errorf("checkpointer: store step %d: layer %d: %w", made.Step, l.Layer, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storedPatience)
	defer cancel()
	err := c.report(ctx, saved, c.Self)
	if errors.Is(err, consensus.ErrStale) { // the log keeps newer ones
		return nil
	}
	return err
}

// Fetch brings the state of layers here, from several holders at the same time, so that none has much more to send to the plan's
// members than another. It returns when the parameters are here. rest brings the moments, for which Load of the returned saver waits: it
// must be called. What cannot be had that way Load asks everybody for. The chunks stay until a later checkpoint: the one that they are of may not be
// stored here yet.
func (s PlanSaver) Fetch(ctx context.Context, wanted []int) (loads PlanSaver, rest func()) {
	layers, err := s.layersAt(s.plan.Start)
	if err != nil || len(wanted) == 0 {
		return s, func() {}
	}
	for _, st := range s.own(consensus.Checkpoint{Step: s.plan.Start, Layers: layers}) {
		if err := s.Store.Pin(st.request.pin(), st.request.Chunks); err != nil {
			s.Log.Warn("the state at the start of the plan may be swept", "step", s.plan.Start, "cause", err)
		}
	}
	fetch := func(of pipeline.Part) {
		fetching, free := s.untilLost(ctx, wanted...)
		defer free()
		shares := s.shares(layers, wanted, of)
		if of == pipeline.Moments {
			shares = s.addOwn(shares, wanted)
		}
		if err := s.Fetcher.fetchShares(fetching, shares); err != nil && ctx.Err() == nil {
			s.Log.Info("some of the state is looked for elsewhere", "cause", err)
		}
	}
	fetch(pipeline.Parameters)
	done := make(chan struct{})
	s.moments = done
	return s, func() {
		defer close(done)
		fetch(pipeline.Moments)
	}
}

// Load writes a layer's state at the plan's start step to dst. For step 0 these are the weights
// that the run starts from. It fetches chunks that are not here. Those that nobody holds any more it waits for while another member
// computes them again. Of a vector that was not saved it writes nothing.
func (s PlanSaver) Load(ctx context.Context, layer int, of pipeline.Part, dst io.Writer) error {
	var own *plan.Own
	if int(s.replica) < len(s.plan.Replicas) {
		own = s.plan.Replicas[s.replica].Own
	}
	if own != nil && (of == pipeline.Moments || of == pipeline.Missed) {
		return s.loadOwn(ctx, *own, layer, of, dst)
	}
	layers, err := s.layersAt(s.plan.Start)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(layers, func(l consensus.LayerRef) bool { return l.Layer == layer })
	if i < 0 {
		return fmt.Errorf("checkpointer: the checkpoint of step %d has no layer %d", s.plan.Start, layer)
	}
	l := layers[i]
	if run := s.Consensus.State().Run; s.plan.Start > 0 && run != nil && layer < run.Model.Layers() {
		params, trained := int64(4*run.Model.LayerLen(layer)), int64(4*run.Model.TrainedLen(layer))
		switch {
		case own == nil:
			if err := checkSize(*run, s.plan.Start, l); err != nil {
				return err
			}
		case l.SizeBytes != params && l.SizeBytes != params+trained:
			return fmt.Errorf("checkpointer: layer %d of the checkpoint of step %d has size_bytes %d, want %d, and %d more with a momentum of outer steps", layer, s.plan.Start, l.SizeBytes, params, trained)
		}
	}
	cut := cutOf(s.Consensus.State().Run, l.Layer, l.SizeBytes)
	switch {
	case of == pipeline.Parameters:
		return s.loadHead(ctx, l, cut.Head, dst)
	case of == pipeline.OuterMomentum && l.SizeBytes == cut.Head:
		return nil
	}
	if err := s.awaitMoments(ctx); err != nil {
		return err
	}
	if of == pipeline.Moments || of == pipeline.OuterMomentum {
		dst = &without{dst, cut.Head}
	}
	return s.streamRestored(ctx, l, dst)
}

// awaitMoments waits until Fetch has no more of them on their way.
func (s PlanSaver) awaitMoments(ctx context.Context) error {
	if s.moments == nil {
		return nil
	}
	select {
	case <-s.moments:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loadOwn writes a part of what a replica had for itself.
func (s PlanSaver) loadOwn(ctx context.Context, own plan.Own, layer int, of pipeline.Part, dst io.Writer) error {
	layers, err := s.ownAt(own)
	if err != nil {
		return err
	}
	i, run := slices.IndexFunc(layers, func(l consensus.LayerRef) bool { return l.Layer == layer }), s.Consensus.State().Run
	if i < 0 || run == nil || layer >= run.Model.Layers() {
		return fmt.Errorf("checkpointer: the checkpoint of step %d has no layer %d of replica %d", own.Step, layer, own.Replica)
	}
	moments, trained := int64(pipeline.LayerStateBytes(*run, layer)-4*run.Model.LayerLen(layer)), int64(4*run.Model.TrainedLen(layer))
	if err := s.awaitMoments(ctx); err != nil {
		return err
	}
	switch l := layers[i]; {
	case l.SizeBytes != moments && l.SizeBytes != moments+trained:
		return fmt.Errorf("checkpointer: layer %d of replica %d in the checkpoint of step %d has size_bytes %d, want %d, and %d more of what messages lack", layer, own.Replica, own.Step, l.SizeBytes, moments, trained)
	case of == pipeline.Moments:
		return s.loadHead(ctx, l, moments, dst)
	case l.SizeBytes == moments:
		return nil
	default:
		return s.streamRestored(ctx, l, &without{dst, moments})
	}
}

// checkSize refuses a layer's state of another size than the run's optimizer keeps: it would be read as what it is not.
func checkSize(run plan.RunSpec, step plan.Step, l consensus.LayerRef) error {
	want := int64(pipeline.LayerStateBytes(run, l.Layer))
	if l.SizeBytes == want {
		return nil
	}
	return fmt.Errorf("checkpointer: layer %d of the checkpoint of step %d has size_bytes %d, with optimizer %s it is %d: go on with the version of pnode that wrote it, or begin a new run from its weights with --init",
		l.Layer, step, l.SizeBytes, run.Train.Optimizer, want)
}

// loadHead reads no more chunks than have the first bytes, wherever the layer was cut.
func (s PlanSaver) loadHead(ctx context.Context, l consensus.LayerRef, left int64, dst io.Writer) error {
	for i := 0; i < len(l.Chunks) && left > 0; i++ {
		one := l
		one.Chunks = l.Chunks[i : i+1]
		to := &only{dst, left}
		if err := s.streamRestored(ctx, one, to); err != nil {
			return err
		}
		left = to.left
	}
	return nil
}

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
