package checkpointer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

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
			store, err := checkpoint.Open(quickDir(t), checkpoint.Options{Self: "me"})
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

// TestALostHolderIsReplaced: by the save under way, by the next one, and for the newest checkpoint at once.
func TestALostHolderIsReplaced(t *testing.T) {
	current := plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{
		{Stages: []plan.Placement{{Peer: "me", Holder: "b", Layers: plan.LayerRange{End: 1}}}},
	}}
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
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
			store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
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

// TestWhoGivesACopyUpSaysWhy: for another plan, or since nothing comes from the asking node. That it is short of something itself is an error.
func TestWhoGivesACopyUpSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name   string
		pauses bool
		err    error // of what is fetched
		want   string
		fails  bool
	}{
		{"another plan is to follow", true, nil, copyEnded, false},
		{"no way there", false, errors.New("no route"), copyUnsent, false},
		{"no files", false, syscall.EMFILE, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := checkpoint.Open(quickDir(t), checkpoint.Options{Self: "b"})
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
					if c.pauses {
						state := log.State()
						state.PauseWanted++
						log.set(state)
						<-ctx.Done()
					}
					return cmp.Or(ctx.Err(), c.err)
				}
				holder := &Checkpointer{Config: Config{Self: "b", Store: store, Fetcher: fetcher, Consensus: log, Log: slog.New(slog.DiscardHandler)}}
				answer, err := holder.hold(t.Context(), "a", []byte(`{"generation":3,"step":23,"chunks":["0700000000000000000000000000000000000000000000000000000000000000"]}`))
				if string(answer) != c.want || (err != nil) != c.fails {
					t.Errorf("%q, %v", answer, err)
				}
			})
		})
	}
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
