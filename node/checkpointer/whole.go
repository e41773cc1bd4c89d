package checkpointer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pnode/checkpoint"
	"pnode/node/plain"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Whole keeps all layers of the newest checkpoint that the line can carry on this node. It brings one checkpoint at a
// time, to its end: on a slow line it then passes over those that were committed meanwhile. Only the run's last one, or
// the run's going back, ends it early. Chunks travel in the class of messages that every other one passes by, and slower
// while steps need the line (pipeline/link).
type Whole struct {
	*Checkpointer
	// Keeps reports whether this node is to have the model of a state whole.
	Keeps func(consensus.State) bool
	// Wanted tells that Keeps has another answer.
	Wanted <-chan struct{}
	// Changing reports whether members fetch state to begin a plan with, which all wait for; nil is never.
	Changing func(consensus.State) bool
	// Took is told of each checkpoint that is whole here, and does not block; nil tells nobody.
	Took func(consensus.Checkpoint)

	// Run alone uses these: what the log was told of last, when checkpoints came, and how long bringing the newest one took, of so many bytes.
	told    ID
	commits commitClock
	took    time.Duration
	bytes   int64

	mu   sync.Mutex // guards copy
	copy plan.WholeCopy
}

// commitClock holds when the two newest checkpoints were seen first.
type commitClock struct {
	newest       ID
	at, interval time.Duration
}

const (
	// wholeRetry is the time between two tries for a checkpoint that could not be had.
	wholeRetry = 5 * time.Second
	// A copy lets a change of plan pass, at most for changePatience after its checkpoint came, and looks every changeLook.
	changePatience = time.Minute
	changeLook     = time.Second
	// ownSaves counts the saves of this node's own stages for which room stays, besides a whole checkpoint.
	ownSaves = 2
	// tellTimeout bounds telling the log of a copy, which is tried again.
	tellTimeout = 10 * time.Second
	// mostLacksTold bounds the layers that are named to people.
	mostLacksTold = 3
	// wholePin keeps what has come of a checkpoint from being swept.
	wholePin = "whole"
)

var (
	// errReplaced ends the fetch of a checkpoint that the run needs no more.
	errReplaced = errors.New("checkpointer: the checkpoint is replaced")
	// errChanging puts a fetch off.
	errChanging = errors.New("checkpointer: a plan is about to begin")
)

// Run keeps the newest checkpoint whole until ctx ends.
func (w *Whole) Run(ctx context.Context) {
	begun := time.Now()
	for ctx.Err() == nil {
		changed := w.Consensus.Changed()
		retry := (<-chan time.Time)(nil)
		switch err := w.look(ctx, w.Consensus.State(), time.Since(begun)); {
		case errors.Is(err, errReplaced):
			continue
		case errors.Is(err, errChanging):
			retry = time.After(changeLook)
		case err != nil:
			retry = time.After(wholeRetry)
		}
		select {
		case <-changed:
		case <-w.Wanted:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// Copy returns what this node has and does.
func (w *Whole) Copy() plan.WholeCopy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copy
}

// set changes the copy.
func (w *Whole) set(change func(*plan.WholeCopy)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.copy)
}

// look does what a state asks for: nothing, or to bring its newest checkpoint here.
func (w *Whole) look(ctx context.Context, state consensus.State, now time.Duration) error {
	target := state.Checkpoint
	if state.Run == nil || target.Step == 0 {
		return nil
	}
	keeps, have, fresh := w.Keeps(state), w.Copy(), w.commits.note(IDOf(target), now)
	w.set(func(c *plan.WholeCopy) {
		if c.Off = !keeps; c.Step > target.Step { // the run went back
			c.Step, c.Generation = 0, 0
		}
	})
	if have.Has(target.Step, target.Generation) && w.told == IDOf(target) || !keeps && !fresh {
		return nil
	}
	all := wholeOf(state)
	lacks := missingBytes(w.Store, w.Consensus.State().Run, all.layers)
	switch {
	case lacks == 0:
		return w.take(ctx, state, all)
	case !keeps:
		return w.Store.Unpin(wholePin)
	case w.late(state, lacks):
		return nil
	case w.Changing != nil && w.Changing(state) && now-w.commits.at < changePatience:
		return errChanging
	}
	return w.bring(ctx, state, all, lacks)
}

// allOf has the layers of a whole copy. With local steps these are what all replicas have in common, and what one of them has for itself.
type allOf struct {
	layers []consensus.LayerRef
	own    *plan.Replica
}

// wholeOf returns what a whole copy of a state's newest checkpoint has: of replicas the first one whose state is held.
func wholeOf(state consensus.State) (all allOf) {
	target := state.Checkpoint
	all.layers = slices.Clone(target.Layers)
	held := consensus.OwnStates(state, target)
	if len(held) == 0 || held[0].Copied {
		return all
	}
	all.own = &held[0].Replica
	for _, o := range target.Own {
		if o.Replica == *all.own {
			all.layers = append(all.layers, o.Layers...)
		}
	}
	return all
}

// note takes in the newest checkpoint and reports whether it was not known before.
func (c *commitClock) note(id ID, now time.Duration) bool {
	if c.newest == id {
		return false
	}
	if c.newest.Step != 0 {
		c.interval = now - c.at
	}
	c.newest, c.at = id, now
	return true
}

// late reports whether the run's last checkpoint is committed before this one would be here. None follows in a run that stops.
func (w *Whole) late(state consensus.State, lacks int64) bool {
	train := state.Run.Train
	if state.StopWanted || w.bytes == 0 || state.Checkpoint.Step == train.Steps || state.Checkpoint.Step+train.CheckpointEvery < train.Steps {
		return false
	}
	needs := time.Duration(float64(w.took) * float64(lacks) / float64(w.bytes))
	return w.commits.interval > 0 && needs > w.commits.interval
}

// bring fetches the newest checkpoint of a state, which lacks so many bytes here.
func (w *Whole) bring(ctx context.Context, state consensus.State, all allOf, lacks int64) error {
	target, begun := state.Checkpoint, time.Now()
	err := w.room(ctx, state, lacks)
	if err == nil {
		err = w.Store.Pin(wholePin, all.hashes())
	}
	if err == nil {
		w.set(func(c *plan.WholeCopy) {
			c.Why, c.Next, c.SizeBytes = "", target.Step, sizeOf(all.layers)
			c.DoneBytes = c.SizeBytes - lacks
		})
		params := func(layer int) int64 { return 4 * int64(state.Run.Model.LayerLen(layer)) }
		err = w.Fetcher.Gather(ctx, all.layers, params, func(h plan.Hash, data []byte) error {
			if w.replaced(target) {
				return errReplaced
			}
			err := w.Store.PutNamed(h, data)
			if err == nil {
				w.set(func(c *plan.WholeCopy) { c.DoneBytes = min(c.DoneBytes+int64(len(data)), c.SizeBytes) })
			}
			return err
		})
	}
	if err == nil {
		err = w.take(ctx, state, all)
	}
	if err == nil {
		w.took, w.bytes = time.Since(begun), lacks
		return nil
	}
	if w.replaced(target) {
		err = errReplaced
	}
	why := ""
	if ctx.Err() == nil && !errors.Is(err, errReplaced) {
		why = w.why(target, all, err)
	}
	w.set(func(c *plan.WholeCopy) {
		c.Next, c.DoneBytes, c.SizeBytes = 0, 0, 0
		c.Why = cmp.Or(why, c.Why)
	})
	return err
}

// why tells people why a checkpoint could not be brought: by layers and machines where chunks of it cannot be had, which the log of this
// node names.
func (w *Whole) why(target consensus.Checkpoint, all allOf, err error) string {
	if !errors.Is(err, ErrNoChunks) {
		return plain.Text(err)
	}
	w.Log.Info("chunks of the checkpoint cannot be had", "step", target.Step, "cause", err)
	var lacks []string
	for _, l := range all.layers {
		if len(w.Fetcher.Missing(l.Chunks)) == 0 {
			continue
		}
		if len(lacks) == mostLacksTold {
			lacks = append(lacks, "others")
			break
		}
		from := "any node that is up"
		if others := w.others(l); len(others) > 0 {
			from = strings.Join(others, " or ")
		}
		lacks = append(lacks, fmt.Sprintf("layer %d from %s", l.Layer, from))
	}
	if len(lacks) == 0 { // they have come meanwhile
		return plain.Text(err)
	}
	return fmt.Sprintf("of step %d it cannot get %s; it tries again", target.Step, strings.Join(lacks, ", "))
}

// room returns an error unless a checkpoint that lacks so many bytes here fits. The last one may take the place of the
// one before.
func (w *Whole) room(ctx context.Context, state consensus.State, lacks int64) error {
	own := int64(0)
	for _, l := range state.Checkpoint.Layers {
		if slices.Contains(l.Holders, w.Self) {
			own += l.SizeBytes
		}
	}
	err := w.Store.Fits(lacks, ownSaves*own)
	if !errors.Is(err, checkpoint.ErrDiskFull) || state.Checkpoint.Step != state.Run.Train.Steps {
		return err
	}
	w.set(func(c *plan.WholeCopy) { c.Step, c.Generation = 0, 0 })
	if err := w.tell(ctx, ID{}, allOf{}); err != nil {
		return err
	}
	if err := w.thin(state); err != nil {
		return err
	}
	return w.Store.Fits(lacks, ownSaves*own)
}

// replaced reports whether a checkpoint is one to bring no more: the run went back from it, has come to its end, or stops.
func (w *Whole) replaced(target consensus.Checkpoint) bool {
	state := w.Consensus.State()
	now := state.Checkpoint
	return IDOf(now) != IDOf(target) && (now.Step <= target.Step || now.Step == state.Run.Train.Steps || state.StopWanted)
}

// take notes that the newest checkpoint of a state is whole here, with its manifest, tells the log, and drops what only an older whole
// one needs.
func (w *Whole) take(ctx context.Context, state consensus.State, all allOf) error {
	target := state.Checkpoint
	made := manifestOf(state)
	err := w.Store.Settle(all.hashes()) // also what replicas here had in memory, for which the log does not name this node
	if err == nil {
		err = w.Store.Commit(made)
	}
	if err != nil {
		return fmt.Errorf("checkpointer: keep the checkpoint of step %d whole: %w", target.Step, err)
	}
	told := w.tell(ctx, IDOf(target), all) // first: whoever hears of the copy may go
	w.set(func(c *plan.WholeCopy) {
		*c = plan.WholeCopy{Step: target.Step, Generation: target.Generation, Off: c.Off}
	})
	if w.Took != nil {
		w.Took(target)
	}
	if err := errors.Join(w.Store.Unpin(wholePin), told); err != nil {
		return err
	}
	return w.thin(state)
}

// tell has the log count this node as a holder of all layers of a checkpoint, and no more of those that were whole here before; the
// zero ID is none. A checkpoint that the log does not keep any more needs no holders.
func (w *Whole) tell(ctx context.Context, of ID, all allOf) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	now := w.Consensus.State()
	if !now.Owner(w.Self) { // who may lie counts for no holder: others know of the copy by gossip
		w.told = of
		return nil
	}
	m, known := now.Member(w.Self)
	if !known || m.State == consensus.Gone {
		return nil // it is told when this node is back
	}
	if IDOf(now.Checkpoint) == of && storedBy(wholeOf(now).layers, w.Self) && !slices.ContainsFunc(now.Older, w.whole) {
		w.told = of
		return nil
	}
	err := w.Consensus.Propose(ctx, consensus.KeptWhole{Peer: w.Self, Step: of.Step, Generation: of.Generation, Own: all.own})
	if err != nil && !errors.Is(err, consensus.ErrStale) {
		return fmt.Errorf("checkpointer: tell of the whole copy of step %d: %w", of.Step, err)
	}
	w.told = of
	return nil
}

// whole reports whether the log counts a whole copy of a checkpoint here.
func (w *Whole) whole(c consensus.Checkpoint) bool {
	return slices.ContainsFunc(c.Layers, func(l consensus.LayerRef) bool { return slices.Contains(l.Holders[len(l.Holders)-l.Whole:], w.Self) })
}

// thin drops the chunks of layers that this node does not hold of all checkpoints before a state's: they are where the
// log says. Of a newer one, which was committed while this one came, stages here may be about to load layers.
func (w *Whole) thin(state consensus.State) error {
	stored, err := w.Store.Manifests()
	if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) {
		return err
	}
	log := w.Consensus.State()
	logged := consensus.Checkpoints(log)
	stay := map[plan.Hash]bool{}
	var drop []plan.Hash
	note := func(m checkpoint.Manifest, whole bool) {
		for _, l := range m.States() {
			for _, h := range l.Chunks {
				if whole || slices.Contains(l.Holders, w.Self) {
					stay[h] = true
				} else {
					drop = append(drop, h)
				}
			}
		}
	}
	note(manifestOf(state), true)
	awaited := w.awaited()
	for _, m := range stored {
		at := slices.IndexFunc(logged, func(c consensus.Checkpoint) bool { return IDOf(c) == ID{m.Step, m.Generation} })
		if at >= 0 { // with the holders of now
			m = manifest(log, logged[at])
			if err := w.Store.Commit(m); err != nil && !errors.Is(err, checkpoint.ErrNotFound) { // damaged ones stay as they are
				return fmt.Errorf("checkpointer: note who holds the checkpoint of step %d: %w", m.Step, err)
			}
		}
		note(m, m.Step > state.Checkpoint.Step || slices.Contains(awaited, m.Step))
	}
	return w.Store.Release(slices.DeleteFunc(drop, func(h plan.Hash) bool { return stay[h] }))
}

// hashes are the chunks of all layers.
func (a allOf) hashes() (all []plan.Hash) {
	for _, l := range a.layers {
		all = append(all, l.Chunks...)
	}
	return all
}

// sizeOf returns the bytes of all layers.
func sizeOf(layers []consensus.LayerRef) (bytes int64) {
	for _, l := range layers {
		bytes += l.SizeBytes
	}
	return bytes
}

// missingBytes returns how many bytes of some layers are not in a store.
func missingBytes(store *checkpoint.Store, run *plan.RunSpec, layers []consensus.LayerRef) (bytes int64) {
	for _, l := range layers {
		cut := cutOf(run, l.Layer, l.SizeBytes)
		for i, h := range l.Chunks {
			if !store.HasChunk(h) {
				bytes += cut.Chunk(i)
			}
		}
	}
	return bytes
}

// HasWhole reports whether the checkpoint of a step is in a store with the state of every layer, and where replicas have states of their own with one of them.
func HasWhole(store *checkpoint.Store, step plan.Step) bool {
	m, err := store.Manifest(step)
	here := func(layers []checkpoint.LayerState) bool {
		return !slices.ContainsFunc(checkpoint.Manifest{Layers: layers}.Hashes(), func(h plan.Hash) bool { return !store.HasChunk(h) })
	}
	return err == nil && here(m.Layers) && (len(m.Own) == 0 || slices.ContainsFunc(m.Own, func(o checkpoint.OwnState) bool { return here(o.Layers) }))
}

// WholeBytes returns the size of a checkpoint of a run with the state of every layer, and with what a replica with local steps adds to it at most.
func WholeBytes(run plan.RunSpec) (bytes int64) {
	for layer := range run.Model.Layers() {
		bytes += int64(pipeline.LayerStateBytes(run, layer))
		if run.Train.Sync.Local {
			bytes += 2 * 4 * int64(run.Model.TrainedLen(layer))
		}
	}
	return bytes
}
