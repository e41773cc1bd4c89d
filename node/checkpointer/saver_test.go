package checkpointer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lukechampine.com/blake3"

	"pnode/checkpoint"
	"pnode/checkpoint/disk"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// told is a consensus and the members at once: it notes what a saver does, in order. Its state changes at no time.
type told struct {
	state   consensus.State
	acts    []string
	last    bool   // the newest report is of the generation's last step
	refuses error  // reports with a holder
	ended   func() // nil, or called after a report
}

func (t *told) State() consensus.State   { return t.state }
func (t *told) Changed() <-chan struct{} { return nil }

func (t *told) Propose(_ context.Context, e consensus.Entry) error {
	saved := e.(consensus.StageSaved)
	t.last = saved.Last
	act := fmt.Sprintf("report %d of %d: %v", saved.Step, saved.Generation, saved.Layers[0].Holders)
	if saved.Unstored != 0 {
		act += fmt.Sprintf(" in memory of process %d", saved.Unstored)
	}
	t.acts = append(t.acts, act)
	if t.ended != nil {
		t.ended()
	}
	if len(saved.Layers[0].Holders) > 1 {
		return t.refuses
	}
	return nil
}

func (t *told) Ask(_ context.Context, peer plan.PeerID, _ string, request any) ([]byte, error) {
	t.acts = append(t.acts, fmt.Sprintf("copy of %d to %s", request.(copyRequest).Step, peer))
	return nil, nil
}

func (t *told) Serve(string, func(context.Context, plan.PeerID, []byte) ([]byte, error)) {}

// members returns active members, which are to be named in order.
func members(peers ...plan.PeerID) (all []consensus.Member) {
	for _, p := range peers {
		all = append(all, consensus.Member{Peer: p, State: consensus.Active})
	}
	return all
}

// TestWhoSavesWaitsForAPlanBeforeItMakesCopies: in a pause each replica reports its state as soon as it can be read, and the
// next plan fetches it there; else it is stored first, and a copy made.
func TestWhoSavesWaitsForAPlanBeforeItMakesCopies(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
		{Stages: []plan.Placement{{Peer: "me", Holder: "c", Layers: plan.LayerRange{End: 1}}}},
	}}
	paused := consensus.State{Run: &plan.RunSpec{}, Plan: current, PauseWanted: 1, Checkpoint: consensus.Checkpoint{Step: 20}, Members: members("b", "c", "me")}
	paused.Members[2].ProcessEpoch = 5
	first := paused
	first.Checkpoint = consensus.Checkpoint{}
	ending, stopping := paused, paused
	ending.Run, stopping.StopWanted = &plan.RunSpec{Train: plan.TrainSpec{Steps: 23}}, true
	stopped := consensus.State{Run: &plan.RunSpec{}, Plan: current, StopWanted: true, Members: paused.Members}
	for _, c := range []struct {
		name    string
		state   consensus.State
		last    bool
		left    bool // in memory, after the plan's end
		replica plan.Replica
		follows time.Duration // when the plan ends; 0 is never
		want    []string
	}{
		{"a checkpoint in the middle", stopped, false, false, 0, 0, []string{"copy of 23 to b", "report 23 of 3: [me b]"}},
		{"which one replica saves", stopped, false, false, 1, 0, nil},
		{"the last one of a run", stopped, true, false, 0, 0, []string{"copy of 23 to b", "report 23 of 3: [me b]"}},
		{"which one replica saves", stopped, true, false, 1, 0, nil},
		{"a pause", paused, true, false, 0, time.Second, []string{"report 23 of 3: [me] in memory of process 5"}},
		{"another replica has the same", paused, true, false, 1, time.Second, []string{"report 23 of 3: [me] in memory of process 5"}},
		{"a pause before the first checkpoint", first, true, false, 0, 0, []string{"copy of 23 to b", "report 23 of 3: [me b]"}},
		{"what is left after the plan's end", paused, false, true, 1, 0, []string{"report 23 of 3: [me] in memory of process 5"}},
		{"what is left of the run's last step", ending, true, true, 0, 0, []string{"report 23 of 3: [me]"}},
		{"what is left of a run that stops", stopping, true, true, 0, 0, []string{"report 23 of 3: [me]"}},
		{"the run's last step in a pause", ending, true, false, 0, time.Second, []string{"report 23 of 3: [me]"}},
		{"no plan comes", paused, true, false, 0, 0, []string{"report 23 of 3: [me] in memory of process 5", "copy of 23 to b", "report 23 of 3: [me b]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				ctx, end := context.WithCancel(t.Context())
				defer end()
				if c.follows > 0 {
					time.AfterFunc(c.follows, end)
				}
				log := &told{state: c.state}
				saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
				if c.left {
					saver = saver.Checkpointer.Salvage(current)
				}
				err = saver.Save(ctx, pipeline.State{
					Step: 23, Last: c.last, Replica: c.replica, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}},
				})
				if err != nil || !slices.Equal(log.acts, c.want) {
					t.Errorf("%v, %v; want %v", log.acts, err, c.want)
				}
			})
		})
	}
}

// TestWhatAPauseKeepsInMemoryIsStoredBehind: no sync is waited for before the report of a pause. The log hears that the layers are stored once
// they are, and not of those that have not come so far.
func TestWhatAPauseKeepsInMemoryIsStoredBehind(t *testing.T) {
	dir, syncs, broken := t.TempDir(), 0, false
	store, err := checkpoint.Open(dir, checkpoint.Options{Self: "me", Disk: disk.Disk{Before: func(c disk.Change, path string) error {
		switch {
		case c != disk.Sync || !strings.HasPrefix(path, filepath.Join(dir, "tmp")):
		case broken:
			return errors.New("the disk is broken")
		default:
			syncs++
		}
		return nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	syncs = 0
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me", Layers: plan.LayerRange{End: 1}}}}}}
	state := consensus.State{Run: &plan.RunSpec{Run: "run"}, Plan: current, PauseWanted: 1, Checkpoint: consensus.Checkpoint{Step: 20}, Members: members("b", "me")}
	state.Members[1].ProcessEpoch = 5
	log := &told{state: state}
	made := New(Config{Self: "me", Store: store, Fetcher: Fetcher{Self: "me", Store: store}, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)})
	ctx, end := context.WithCancel(t.Context())
	log.ended = end // the next plan follows the report
	err = made.For(current).Save(ctx, pipeline.State{Step: 23, Last: true, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}})
	if want := []string{"report 23 of 3: [me] in memory of process 5"}; err != nil || !slices.Equal(log.acts, want) || syncs != 0 {
		t.Fatalf("%v after %d syncs, %v; want %v", log.acts, syncs, err, want)
	}
	log.acts = nil
	hash := plan.Hash(blake3.Sum256([]byte("state")))
	layer := consensus.LayerRef{SizeBytes: 5, Chunks: []plan.Hash{hash}, Holders: []plan.PeerID{"me"}, Unstored: []consensus.Process{{Peer: "me", ProcessEpoch: 5}}}
	log.state.Checkpoint = consensus.Checkpoint{Step: 23, Generation: 3, Layers: []consensus.LayerRef{layer}}
	broken = true
	if err := errors.Join(made.Commit(log.state), made.Stored(t.Context(), log.state)); err == nil || len(log.acts) > 0 {
		t.Errorf("%v while the disk is broken, %v", log.acts, err)
	}
	broken = false
	if err := made.Commit(log.state); err != nil || syncs == 0 {
		t.Fatalf("%d syncs, %v", syncs, err)
	}
	err = made.Stored(t.Context(), log.state)
	if want := []string{"report 23 of 3: [me]"}; err != nil || !slices.Equal(log.acts, want) {
		t.Errorf("%v, %v; want %v", log.acts, err, want)
	}
	log.acts = nil
	pending := consensus.Checkpoint{Step: 23, Generation: 3, Last: true, Layers: []consensus.LayerRef{layer}}
	err = made.Stored(t.Context(), consensus.State{Pending: []consensus.Checkpoint{pending}})
	if want := []string{"report 23 of 3: [me]"}; err != nil || !slices.Equal(log.acts, want) || !log.last {
		t.Errorf("%v, %v; want %v of the last step, which the others have yet to report", log.acts, err, want)
	}
	log.acts = nil
	log.state.Checkpoint.Layers = append(log.state.Checkpoint.Layers, layer)
	log.state.Checkpoint.Layers[0].Unstored = nil
	log.state.Checkpoint.Layers[1].Layer, log.state.Checkpoint.Layers[1].Chunks = 1, []plan.Hash{{9}}
	if err := made.Stored(t.Context(), log.state); err != nil || len(log.acts) > 0 {
		t.Errorf("%v, %v: one layer is stored already, the other one is not here", log.acts, err)
	}
}

// TestAReportedStageIsSavedWhateverItsPin: the log counts on it. Only a sweep might take it, of which the user is told.
func TestAReportedStageIsSavedWhateverItsPin(t *testing.T) {
	broken := false
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{Self: "me", Disk: disk.Disk{Before: func(disk.Change, string) error {
		if broken {
			return errors.New("the disk is broken")
		}
		return nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me", Layers: plan.LayerRange{End: 1}}}}}}
	state := consensus.State{Run: &plan.RunSpec{}, Plan: current, PauseWanted: 1, Checkpoint: consensus.Checkpoint{Step: 20}, Members: members("me")}
	state.Members[0].ProcessEpoch = 5
	ctx, end := context.WithCancel(t.Context())
	var warned strings.Builder
	log := &told{state: state, ended: func() { broken = true; end() }}
	saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.NewTextHandler(&warned, nil))}).For(current)
	err = saver.Save(ctx, pipeline.State{Step: 23, Last: true, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}})
	if want := []string{"report 23 of 3: [me] in memory of process 5"}; err != nil || !slices.Equal(log.acts, want) {
		t.Errorf("%v, %v; want %v", log.acts, err, want)
	}
	if !strings.Contains(warned.String(), "may be swept") || !strings.Contains(warned.String(), "the disk is broken") {
		t.Errorf("told %q", warned.String())
	}
}

// TestWhoHasLoadedTheStateSaysSo, so that a member that leaves need not stay, and then has copies made.
func TestWhoHasLoadedTheStateSaysSo(t *testing.T) {
	next := plan.Plan{Generation: 4, Start: 23, Replicas: []plan.Pipeline{{Stages: []plan.Placement{
		{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}},
		{Peer: "b", Holder: "me", Layers: plan.LayerRange{First: 1, End: 2}},
		{Peer: "me", Holder: "b", Layers: plan.LayerRange{First: 2, End: 3}},
	}}}}
	for _, c := range []struct {
		name    string
		step    plan.Step
		holders [3][]plan.PeerID // by layer
		memory  bool             // the state of layer 2 is in memory alone
		want    []string
	}{
		{"the leaver had all", 23, [3][]plan.PeerID{{"leaver"}, {"b"}, {"leaver"}}, false, []string{
			"report 23 of 3: [me]", "report 23 of 3: [me]", "copy of 23 to b", "report 23 of 3: [b]", "copy of 23 to b", "report 23 of 3: [b]",
		}},
		{"some stayed in memory", 23, [3][]plan.PeerID{{"leaver"}, {"b"}, {"leaver"}}, true, []string{
			"report 23 of 3: [me]", "copy of 23 to b", "report 23 of 3: [b]", "copy of 23 to b", "report 23 of 3: [b]",
		}},
		{"all is where it belongs", 23, [3][]plan.PeerID{{"me", "b"}, {"b"}, {"b", "me"}}, false, nil},
		{"the run went back", 10, [3][]plan.PeerID{{"leaver"}, {"b"}, {"leaver"}}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			made := consensus.Checkpoint{Step: c.step, Generation: 3}
			for i, h := range c.holders {
				made.Layers = append(made.Layers, consensus.LayerRef{Layer: i, Holders: h})
			}
			store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{Self: "me"})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if c.memory {
				made.Layers[2].Chunks = []plan.Hash{{7}}
			}
			log := &told{state: consensus.State{Plan: next, Checkpoint: made, Members: members("b", "me")}}
			saver := New(Config{Self: "me", Store: store, Fetcher: Fetcher{Store: store}, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(next)
			waits, end := context.WithCancel(t.Context())
			end()
			stepped := make(chan struct{})
			if err := saver.Settle(waits, stepped); err != nil || slices.ContainsFunc(log.acts, func(act string) bool { return strings.HasPrefix(act, "copy") }) {
				t.Errorf("%v, %v before the first step", log.acts, err)
			}
			log.acts = nil
			close(stepped)
			if err := saver.Settle(t.Context(), stepped); err != nil || !slices.Equal(log.acts, c.want) {
				t.Errorf("%v, %v; want %v", log.acts, err, c.want)
			}
		})
	}
}

// mortal is told with a holder that is lost while it fetches the first copy.
type mortal struct {
	told
	fakeLog
	dies plan.PeerID
}

func (m *mortal) State() consensus.State   { return m.fakeLog.State() }
func (m *mortal) Changed() <-chan struct{} { return m.fakeLog.Changed() }

func (m *mortal) Propose(ctx context.Context, e consensus.Entry) error { return m.told.Propose(ctx, e) }

func (m *mortal) Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error) {
	_, _ = m.told.Ask(ctx, peer, protocol, request) // notes it
	if peer != m.dies {
		return nil, nil
	}
	m.lose(peer)
	<-ctx.Done()
	return nil, ctx.Err()
}

// lose has the log say that a member is gone.
func (m *mortal) lose(peer plan.PeerID) {
	state := m.State()
	state.Epoch++
	state.Members = slices.Clone(state.Members)
	for i := range state.Members {
		if state.Members[i].Peer == peer {
			state.Members[i].State = consensus.Gone
		}
	}
	m.set(state)
}

// TestALostHolderIsReplaced: by the save under way, by the next one, and for the newest checkpoint at once.
func TestALostHolderIsReplaced(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
	}}
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log := &mortal{dies: "b"}
	log.changed = make(chan struct{})
	log.set(consensus.State{Run: &plan.RunSpec{}, Plan: current, Members: members("b", "c", "d", "me"), Checkpoint: consensus.Checkpoint{
		Step: 20, Generation: 2, Layers: []consensus.LayerRef{{Holders: []plan.PeerID{"me", "b"}}},
	}})
	saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
	want := func(acts ...string) {
		t.Helper()
		if !slices.Equal(log.acts, acts) {
			t.Errorf("%q, want %q", log.acts, acts)
		}
		log.acts = nil
	}
	save := func(step plan.Step) {
		t.Helper()
		if err := saver.Save(t.Context(), pipeline.State{Step: step, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}}); err != nil {
			t.Fatal(err)
		}
	}
	save(21)
	want("copy of 21 to b", "copy of 21 to c", "report 21 of 3: [me c]")
	save(22)
	want("copy of 22 to c", "report 22 of 3: [me c]")
	ctx, end := context.WithCancel(t.Context())
	log.dies = "c" // with the copy that it was to have of the checkpoint
	log.ended = func() { end() }
	if err := saver.KeepCopies(ctx); err != nil {
		t.Fatal(err)
	}
	want("copy of 20 to c", "copy of 20 to d", "report 20 of 2: [d]")
}

// TestAReportTheLogRefusesNamesNoHolder: the roster may have changed since the copy was asked for.
func TestAReportTheLogRefusesNamesNoHolder(t *testing.T) {
	for _, c := range []struct {
		refusal error
		want    []string
	}{
		{fmt.Errorf("%w: of another holder", consensus.ErrRejected), []string{"report 7 of 3: [me b]", "report 7 of 3: [me]"}},
		{fmt.Errorf("%w: %w", consensus.ErrRejected, consensus.ErrStale), []string{"report 7 of 3: [me b]"}},
	} {
		log := &told{refuses: c.refusal}
		saver := PlanSaver{Checkpointer: &Checkpointer{Config: Config{Self: "me", Store: emptyStore(t), Consensus: log, Log: slog.New(slog.DiscardHandler)}}}
		err := saver.reportCopy(t.Context(), consensus.StageSaved{Step: 7, Generation: 3, Layers: make([]consensus.LayerRef, 1)}, "b")
		if !slices.Equal(log.acts, c.want) || (err == nil) != (len(c.want) == 2) {
			t.Errorf("%q, %v; want %q", log.acts, err, c.want)
		}
	}
}

// pausing is told with a holder that has read of a pause before the node that asks it for a copy.
type pausing struct {
	told
	fakeLog
	after time.Duration // until the asking node reads of it; 0 is never
	saver *PlanSaver
	busy  []bool // whether copies were under way at each request
}

func (p *pausing) State() consensus.State   { return p.fakeLog.State() }
func (p *pausing) Changed() <-chan struct{} { return p.fakeLog.Changed() }

func (p *pausing) Propose(ctx context.Context, e consensus.Entry) error {
	return p.told.Propose(ctx, e)
}

func (p *pausing) Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error) {
	p.busy = append(p.busy, p.saver.Copying())
	if p.after > 0 {
		time.AfterFunc(p.after, func() {
			state := p.State()
			state.PauseWanted++
			p.set(state)
		})
	}
	return []byte(copyEnded), nil
}

// TestACopyThatAPauseEndsIsNoFailure: it is told as one only where no pause comes.
func TestACopyThatAPauseEndsIsNoFailure(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
	}}
	for _, c := range []struct {
		after time.Duration
		warns bool
	}{{planPatience / 2, false}, {0, true}} {
		synctest.Test(t, func(t *testing.T) {
			store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			var told strings.Builder
			log := &pausing{after: c.after}
			log.changed = make(chan struct{})
			log.set(consensus.State{Run: &plan.RunSpec{}, Plan: current, Members: members("b", "me"), Checkpoint: consensus.Checkpoint{Step: 20, Generation: 2}})
			made := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelWarn}))})
			saver := made.For(current)
			log.saver = &saver
			err = saver.Save(t.Context(), pipeline.State{Step: 23, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}})
			if want := []string{"report 23 of 3: [me]"}; err != nil || !slices.Equal(log.acts, want) {
				t.Errorf("%v, %v; want %v", log.acts, err, want)
			}
			if warns := told.Len() > 0; warns != c.warns {
				t.Errorf("a pause after %v: told %q", c.after, told.String())
			}
			if !slices.Equal(log.busy, []bool{true}) || made.Copying() {
				t.Errorf("copies were under way at requests: %v, and after them: %t", log.busy, made.Copying())
			}
			select {
			case <-made.Turned():
			default:
				t.Error("nobody is told that copies began and ended")
			}
		})
	}
}

// TestWhoGivesACopyUpForAPlanSaysSo.
func TestWhoGivesACopyUpForAPlanSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{Self: "b"})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		log := &fakeLog{changed: make(chan struct{})}
		log.set(consensus.State{
			Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Members: members("a", "b"), Checkpoint: consensus.Checkpoint{Step: 20, Generation: 3},
			Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Holder: "b", Layers: plan.LayerRange{End: 1}}}}}},
		})
		fetcher := Fetcher{Self: "b", Store: store, Living: func() []plan.PeerID { return []plan.PeerID{"a"} }}
		fetcher.Fetch = func(ctx context.Context, _ plan.PeerID, _ []plan.Hash, _ func(plan.Hash, []byte) error) error {
			state := log.State()
			state.PauseWanted++
			log.set(state)
			<-ctx.Done()
			return ctx.Err()
		}
		c := &Checkpointer{Config: Config{Self: "b", Store: store, Fetcher: fetcher, Consensus: log, Log: slog.New(slog.DiscardHandler)}}
		answer, err := c.hold(t.Context(), "a", []byte(`{"generation":3,"step":23,"chunks":["0700000000000000000000000000000000000000000000000000000000000000"]}`))
		if string(answer) != copyEnded || err != nil {
			t.Errorf("%q, %v", answer, err)
		}
	})
}

// TestStateInMemoryAloneGetsACopy: where its node has not stored what others have, and these get fewer than two, it has its
// holder fetch a copy from them.
func TestStateInMemoryAloneGetsACopy(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
		{Stages: []plan.Placement{{Peer: "other", Holder: "c", Layers: plan.LayerRange{End: 1}}}},
	}}
	for _, c := range []struct {
		self    plan.PeerID
		holders []plan.PeerID
		gone    plan.PeerID
		want    []string
	}{
		{"me", []plan.PeerID{"d"}, "", []string{"copy of 20 to b", "report 20 of 2: [b]"}},
		{"me", []plan.PeerID{"d", "c"}, "c", []string{"copy of 20 to b", "report 20 of 2: [b]"}},
		{"me", []plan.PeerID{"d", "c"}, "", nil},
		{"me", []plan.PeerID{"me"}, "", []string{"copy of 20 to b", "report 20 of 2: [b]"}},
		{"other", []plan.PeerID{"d"}, "", nil}, // the first replica's node does
		{"other", []plan.PeerID{"other"}, "", []string{"copy of 20 to c", "report 20 of 2: [c]"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &mortal{}
			log.changed = make(chan struct{})
			log.set(consensus.State{Run: &plan.RunSpec{}, Epoch: 1, Plan: current, Members: members("b", "c", "d", "me", "other"), Checkpoint: consensus.Checkpoint{
				Step: 20, Generation: 2, Layers: []consensus.LayerRef{{Holders: c.holders}},
			}})
			if c.gone != "" {
				log.lose(c.gone)
			}
			saver := New(Config{Self: c.self, Store: emptyStore(t), Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
			ctx, end := context.WithTimeout(t.Context(), time.Second)
			defer end()
			if err := saver.KeepCopies(ctx); err != nil || !slices.Equal(log.acts, c.want) {
				t.Errorf("%s, with %v: %q, %v; want %q", c.self, c.holders, log.acts, err, c.want)
			}
		})
	}
}

// TestFetchedStateStaysUntilALaterCheckpoint: the log has the checkpoint that a plan starts from before its manifest is stored
// here, and a sweep for the one before comes last.
func TestFetchedStateStaysUntilALaterCheckpoint(t *testing.T) {
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{Self: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	data := []byte("state")
	h := plan.Hash(blake3.Sum256(data))
	next := plan.Plan{Generation: 4, Start: 23, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "me", Layers: plan.LayerRange{End: 1}}}}}}
	log := &told{state: consensus.State{Run: &plan.RunSpec{Run: "r", Train: plan.TrainSpec{KeepCheckpoints: 1}}, Plan: next, Members: members("b", "me"), Checkpoint: consensus.Checkpoint{
		Step: 23, Generation: 3, Layers: []consensus.LayerRef{{SizeBytes: int64(len(data)), Chunks: []plan.Hash{h}, Holders: []plan.PeerID{"b"}}},
	}}}
	made := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler), Fetcher: Fetcher{
		Self: "me", Store: store, Living: func() []plan.PeerID { return []plan.PeerID{"b"} },
		Fetch: func(_ context.Context, _ plan.PeerID, _ []plan.Hash, put func(plan.Hash, []byte) error) error {
			return put(h, data)
		},
	}})
	_, rest := made.For(next).Fetch(t.Context(), []int{0})
	rest()
	if _, err := store.Sweep(); err != nil || !store.HasChunk(h) {
		t.Errorf("%v, the chunk is here: %t", err, store.HasChunk(h))
	}
	if err := made.Commit(log.state); err != nil || !store.HasChunk(h) {
		t.Errorf("%v, after the commit the chunk is here: %t", err, store.HasChunk(h))
	}
	if pins, err := store.Pins(); err != nil || len(pins) > 0 {
		t.Errorf("%v, pins %q are left", err, pins)
	}
}

// TestOneHolderIsAskedForAllLayersAtOnce: each question costs a round trip.
func TestOneHolderIsAskedForAllLayersAtOnce(t *testing.T) {
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{Self: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	state := map[plan.Hash][]byte{}
	made := consensus.Checkpoint{Step: 23}
	for l := range 3 {
		data := []byte{byte(l)}
		h := plan.Hash(blake3.Sum256(data))
		state[h] = data
		made.Layers = append(made.Layers, consensus.LayerRef{Layer: l, SizeBytes: 1, Chunks: []plan.Hash{h}, Holders: []plan.PeerID{"b"}})
	}
	log := &told{state: consensus.State{Checkpoint: made, Members: members("b", "me")}}
	var asked []int
	saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler), Fetcher: Fetcher{
		Self: "me", Store: store, Living: func() []plan.PeerID { return []plan.PeerID{"b"} },
		Fetch: func(_ context.Context, _ plan.PeerID, hashes []plan.Hash, put func(plan.Hash, []byte) error) error {
			asked = append(asked, len(hashes))
			for _, h := range hashes {
				if err := put(h, state[h]); err != nil {
					return err
				}
			}
			return nil
		},
	}}).For(plan.Plan{Start: 23})
	loads, rest := saver.Fetch(t.Context(), []int{0, 2})
	rest()
	var got bytes.Buffer
	if err := loads.Load(t.Context(), 2, pipeline.Whole, &got); err != nil || !slices.Equal(got.Bytes(), []byte{2}) || !slices.Equal(asked, []int{2}) {
		t.Errorf("%v: loaded %v, asked for %v chunks, want 2 at once", err, got.Bytes(), asked)
	}
}

// TestACheckpointThatComesTooLateIsNoFailure: a pause has had a later step saved meanwhile. The last step of a plan must be
// taken.
func TestACheckpointThatComesTooLateIsNoFailure(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
	}}
	for _, last := range []bool{false, true} {
		store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		log := &told{
			state:   consensus.State{Run: &plan.RunSpec{}, Plan: current, StopWanted: last, Members: members("b", "me")},
			refuses: fmt.Errorf("%w: %w", consensus.ErrRejected, consensus.ErrStale),
		}
		saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
		err = saver.Save(t.Context(), pipeline.State{Step: 23, Last: last, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}})
		if want := []string{"copy of 23 to b", "report 23 of 3: [me b]"}; errors.Is(err, consensus.ErrStale) != last || !slices.Equal(log.acts, want) {
			t.Errorf("last %t: %v, %v", last, log.acts, err)
		}
	}
}

// late refuses all reports as made from an older state.
type late struct{ *told }

func (l late) Propose(ctx context.Context, e consensus.Entry) error {
	_ = l.told.Propose(ctx, e)
	return fmt.Errorf("%w: %w", consensus.ErrRejected, consensus.ErrStale)
}

// TestAReplicaThatSavesLateIsNoFailure: in a pause the log has had the same layers from another replica, and has the next plan,
// which goes on with what is in memory.
func TestAReplicaThatSavesLateIsNoFailure(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "b", Layers: plan.LayerRange{End: 1}}}},
		{Stages: []plan.Placement{{Peer: "me", Layers: plan.LayerRange{End: 1}}}},
	}}
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log := late{&told{state: consensus.State{
		Run: &plan.RunSpec{}, Plan: current, PauseWanted: 1, Checkpoint: consensus.Checkpoint{Step: 20}, Members: members("b", "me"),
	}}}
	saver := New(Config{Self: "me", Store: store, Consensus: log, Peers: log, Log: slog.New(slog.DiscardHandler)}).For(current)
	err = saver.Save(t.Context(), pipeline.State{Step: 23, Last: true, Replica: 1, Layers: []pipeline.LayerState{{Reader: strings.NewReader("state")}}})
	if want := []string{"report 23 of 3: [me]"}; err != nil || !slices.Equal(log.acts, want) {
		t.Errorf("%v, %v; want %v", log.acts, err, want)
	}
}

// sayings is a log that takes what is proposed down.
type sayings struct {
	Consensus
	said []consensus.Entry
}

func (l *sayings) Propose(_ context.Context, e consensus.Entry) error {
	l.said = append(l.said, e)
	return nil
}

// TestAReportSaysNothingOfWholeCopies: the log has counted one of the layers that a worker reports a copy of.
func TestAReportSaysNothingOfWholeCopies(t *testing.T) {
	log := &sayings{}
	s := PlanSaver{Checkpointer: &Checkpointer{Config: Config{Self: "a", Store: emptyStore(t), Consensus: log}}}
	saved := consensus.StageSaved{Step: 5, Layers: []consensus.LayerRef{{Holders: []plan.PeerID{"a", "b"}, Whole: 1}}}
	if err := s.report(t.Context(), saved, "a", "c"); err != nil {
		t.Fatal(err)
	}
	if got := log.said[0].(consensus.StageSaved).Layers[0]; got.Whole != 0 || !slices.Equal(got.Holders, []plan.PeerID{"a", "c"}) || saved.Layers[0].Whole != 1 {
		t.Errorf("reported %+v of %+v", got, saved.Layers[0])
	}
}
