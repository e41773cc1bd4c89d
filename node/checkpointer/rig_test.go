package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// quickDir returns a folder where syncing takes no time, if this machine has one.
func quickDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pnode-checkpointer-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fakeLog is a replicated state that a test changes.
type fakeLog struct {
	mu      sync.Mutex // guards what follows
	state   consensus.State
	changed chan struct{}
}

func (l *fakeLog) State() consensus.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *fakeLog) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Propose takes what is said of whole copies alone.
func (l *fakeLog) Propose(_ context.Context, e consensus.Entry) error {
	if _, ok := e.(consensus.KeptWhole); !ok {
		return errors.New("not asked for")
	}
	next, err := consensus.Apply(l.State(), e)
	if err == nil {
		l.set(next)
	}
	return err
}

func (l *fakeLog) set(state consensus.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
	close(l.changed)
	l.changed = make(chan struct{})
}

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

// emptyStore opens a store in a folder of the test.
func emptyStore(t *testing.T) *checkpoint.Store {
	t.Helper()
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{Self: "me"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}
