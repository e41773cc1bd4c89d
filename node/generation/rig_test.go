package generation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/checkpoint"
	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/node/checkpointer"
	"pnode/node/gossip"
	"pnode/node/hardware"
	"pnode/node/ledger"
	"pnode/node/outersteps"
	"pnode/node/replayer"
	"pnode/pipeline"
	"pnode/pipeline/gather/seals"
	"pnode/pipeline/link"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// rig is a run in virtual time: generations with all of their parts, over emulated links, and a log with the rules of the real
// one. There is no node around them: no leader, no gossip, no phases.
type rig struct {
	*testing.T
	run     plan.RunSpec
	net     *link.Emulated
	members []*member
	group   errgroup.Group

	mu      sync.Mutex // guards the rest
	state   consensus.State
	changed chan struct{}
	answers map[plan.PeerID]map[string]answer
	losses  map[plan.Step]uint64 // by step, as bits
	apart   map[apartStep]uint64 // of replicas with local steps
	made    []outerStep
	counted map[plan.PeerID][]countedStep // by who was told
}

// outerStep is one of the log, with the plan that it is of and who was left out.
type outerStep struct {
	plan.Merged
	plan plan.Plan
	out  []plan.Replica
}

// apartStep is an inner step of a replica.
type apartStep struct {
	plan.Generation
	plan.Replica
	plan.Step
}

// countedStep is one of the run, with the bits of its loss.
type countedStep struct {
	plan.Step
	loss uint64
}

// member carries the log's plans out, as the loop of a node does.
type member struct {
	*rig
	parts    Parts
	endpoint *link.Endpoint
	end      context.CancelFunc
	results  chan error // of its generations
	dir      string     // of its ledger

	mu          sync.Mutex // guards the rest
	newest      plan.Step
	retained    []gossip.RetainedStage
	substituted []consensus.Substitute
	stoodIn     []plan.Step // steps that lost members' workers here came to
	kept        [][2]int    // layers whose state stayed in memory, of how many, by generation
	salvages    int
	replays     atomic.Int32  // of salvages
	replaying   atomic.Uint64 // the newest step of one
}

// patience is how long a test waits, in virtual time.
const patience = 10 * time.Minute

// rigLine says how many bytes a line carries in a second.
const rigLine = 12_500_000

func rigRun() plan.RunSpec {
	return plan.RunSpec{
		Run:   "rig",
		Model: model.Config{Vocab: 64, Context: 16, Blocks: 4, Heads: 1, Channels: 32},
		Train: plan.TrainSpec{
			Seed: 7, Steps: 16, Micros: 6, MicroBatch: 2, LR: 3e-3, MinLR: 3e-4, WarmupSteps: 2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, ClipNorm: 0.5,
			CheckpointEvery: 6, KeepCheckpoints: 1, MinNodes: 1,
		},
	}
}

// rehearse calls f with a rig of some members in a bubble of virtual time, and ends all of it.
func rehearse(t *testing.T, members int, f func(r *rig)) {
	t.Helper()
	rehearseRun(t, rigRun(), members, f)
}

// rehearseRun is rehearse with another run.
func rehearseRun(t *testing.T, run plan.RunSpec, members int, f func(r *rig)) {
	t.Helper()
	net, err := link.NewEmulated(link.EmulatedOptions{Peers: members, Seed: 5, Conditions: link.LinkConditions{BytesPerS: rigLine, Delay: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	r := &rig{T: t, run: run, net: net, changed: make(chan struct{}), answers: map[plan.PeerID]map[string]answer{}, losses: map[plan.Step]uint64{}, apart: map[apartStep]uint64{}, counted: map[plan.PeerID][]countedStep{}}
	owner := net.Peers()[0]
	r.apply(consensus.SetRun{Spec: r.run, Owner: owner})
	r.apply(consensus.Lead{Peer: owner, Term: 1})
	device := plan.DeviceProfile{Name: "cpu", Model: "any", MatMulFLOPS: 3e8, AttentionFLOPS: 3e8, MemoryBytesPerS: 25e8, MemoryFreeBytes: 1 << 30}
	for i, peer := range net.Peers() {
		r.apply(consensus.Join{Peer: peer, ProcessEpoch: 1, Label: fmt.Sprintf("node-%d", i), Profile: plan.Profile{Devices: []plan.DeviceProfile{device}}})
		r.apply(consensus.SetMemberState{Peer: peer, ProcessEpoch: 1, State: consensus.Active})
	}
	ctx, end := context.WithCancel(context.Background())
	for i := range members {
		defer r.add(ctx, i)()
	}
	defer func() {
		end()
		if err := r.group.Wait(); err != nil {
			t.Error(err)
		}
	}()
	f(r)
}

// undisturbed returns the losses of a member that has the whole model.
func undisturbed(t *testing.T) (losses map[plan.Step]uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rehearse(t, 1, func(r *rig) {
			r.plan([]int{0})
			if err := r.members[0].result(); err != nil {
				t.Fatal(err)
			}
			losses = r.losses
		})
	})
	return losses
}

// add makes a member and has it follow the log. The result frees what it has.
func (r *rig) add(ctx context.Context, i int) (free func()) {
	r.Helper()
	self, log := r.net.Peers()[i], slog.New(slog.DiscardHandler)
	store, err := checkpoint.Open(quickDir(r.T), checkpoint.Options{Self: self, Logger: log})
	if err != nil {
		r.Fatal(err)
	}
	machine, err := hardware.Open(ctx, hardware.Options{Threads: 1, Log: log})
	if err != nil {
		r.Fatal(err)
	}
	second, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		r.Fatal(err)
	}
	ctx, end := context.WithCancel(ctx)
	m := &member{rig: r, endpoint: link.NewEndpoint(r.net.Network(i), link.Options{}), end: end, results: make(chan error, 8)}
	author, beats, commits := logOf{r, self}, gossip.NewTracker(), &pipeline.Commits{}
	keeps := replayer.New(replayer.Config{
		Self: self, Peers: author, Fetch: m.endpoint.Fetch, Budget: func() int64 { return 64 << 20 },
		Log: author, Replays: Replays,
	})
	m.endpoint.ServeChunks(func(h plan.Hash) ([]byte, error) {
		if data, ok := keeps.Chunk(h); ok {
			return data, nil
		}
		return store.Chunk(h)
	})
	m.dir = r.TempDir()
	records := ledger.New(m.dir, ledger.Head{Run: r.run.Run, Peer: self}, log)
	m.parts = Parts{
		Self: self, Group: &r.group, Consensus: author, Peers: author, Links: m.endpoint, Hardware: twoDevices{machine, second}, Replayer: keeps, Heartbeats: beats,
		Checkpointer: checkpointer.New(checkpointer.Config{
			Self: self, Store: store, Consensus: author, Peers: author, Log: log,
			Fetcher: checkpointer.Fetcher{Self: self, Store: store, Fetch: m.endpoint.Fetch, Living: r.living},
		}),
		Meter: &gossip.LinkMeter{}, Ledger: records, Words: &outersteps.Words{}, Keys: seals.Alone{}, Data: squares{r.run.Model.Context}, Commits: commits,
		Next: func(p plan.Plan) func(plan.Step) plan.ScheduleChoice {
			return func(plan.Step) plan.ScheduleChoice { return p.ScheduleChoice() }
		},
		Ready: func(plan.PeerID) bool { return true }, Newest: m.step, StandIn: m.standsIn, Watch: m, Log: log,
	}
	ServeCommits(author, commits, r.now)
	r.members = append(r.members, m)
	r.group.Go(func() error { return m.endpoint.Run(ctx) })
	r.group.Go(func() error { m.follow(ctx); return nil })
	return func() {
		if err := errors.Join(machine.Close(), second.Close(), records.Close(), store.Close()); err != nil {
			r.Error(err)
		}
	}
}

// twoDevices is a machine with a second device.
type twoDevices struct {
	*hardware.Machine
	second kernels.Device
}

func (h twoDevices) Device(name string) (kernels.Device, error) {
	if name == "cpu:1" {
		return h.second, nil
	}
	return h.Machine.Device(name)
}

// quickDir returns a folder where syncing takes no time, if this machine has one.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pnode-generation-")
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

// follow carries the log's plans out until ctx ends.
func (m *member) follow(ctx context.Context) {
	var running *Generation
	var left *Remains
	var followed plan.Generation
	book := outersteps.Book{Ledger: m.parts.Ledger}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		changed, state := m.changes(), m.now()
		if state.Plan.Generation > followed {
			if running != nil {
				err := running.Stop(ErrReplaced)
				left = running.Remains(err)
			}
			followed = state.Plan.Generation
			m.parts.Ledger.Plan(state.Plan, nil)
			held := left.HandOver(state.Plan)
			running, left = nil, nil
			if state.Plan.Places(m.parts.Self) {
				running = Start(ctx, m.parts, state, held)
			}
		}
		var done <-chan error
		if running != nil {
			running.Follow(state)
			done = running.Done()
		}
		left = left.Follow(ctx, state)
		book.Follow(state)
		select {
		case <-changed:
		case <-tick.C:
		case err := <-done:
			if err == nil {
				kept, layers := running.Kept()
				m.mu.Lock()
				m.kept = append(m.kept, [2]int{kept, layers})
				m.mu.Unlock()
			}
			running, left = nil, running.Remains(err)
			left.Tell()
			m.results <- err
		case <-ctx.Done():
			if running != nil {
				left = running.Remains(running.Stop(ctx.Err()))
			}
			left.Close()
			return
		}
	}
}

// kill ends a member at once: nothing that it still sends arrives, and the others learn that its process has ended.
func (m *member) kill() {
	for _, other := range m.members {
		if other != m {
			for _, way := range [][2]plan.PeerID{{m.parts.Self, other.parts.Self}, {other.parts.Self, m.parts.Self}} {
				m.net.SetConditions(way[0], way[1], link.LinkConditions{LossPerMillion: 1_000_000})
			}
			other.endpoint.PeerEnded(m.parts.Self)
		}
	}
	m.mute()
	m.end()
}

// plan has the log begin with a plan of members for each replica.
func (r *rig) plan(replicas ...[]int) {
	r.Helper()
	r.carry(r.cut(replicas...))
}

// carry has the log begin with a plan.
func (r *rig) carry(p plan.Plan) {
	r.Helper()
	r.apply(consensus.SetPlan{Plan: p, Term: 1, Epoch: r.now().Epoch})
}

// cut returns the next plan: for each replica its members, which share the layers evenly.
func (r *rig) cut(replicas ...[]int) plan.Plan {
	s := r.now()
	p := plan.Plan{Run: r.run.Run, Generation: s.Plan.Generation + 1, Start: s.Checkpoint.Step, Schedule: "1f1b"}
	for i, members := range replicas {
		share, layers := r.run.Train.Micros/len(replicas), r.run.Model.Layers()
		pipe := plan.Pipeline{FirstMicro: plan.Micro(i * share), Micros: share}
		for stage, member := range members {
			place := plan.Placement{
				Peer: r.net.Peers()[member], Device: "cpu", Codec: "f32",
				Layers: plan.LayerRange{First: stage * layers / len(members), End: (stage + 1) * layers / len(members)},
			}
			if living := r.living(); len(living) > 1 {
				place.Holder = living[(slices.Index(living, place.Peer)+1)%len(living)]
			}
			pipe.Stages = append(pipe.Stages, place)
			pipe.Warmups = append(pipe.Warmups, len(members)-1-stage)
		}
		p.Replicas = append(p.Replicas, pipe)
	}
	return p
}

// living returns the members that are not gone.
func (r *rig) living() (peers []plan.PeerID) {
	for _, m := range r.now().Members {
		if m.State != consensus.Gone {
			peers = append(peers, m.Peer)
		}
	}
	return peers
}

// until lets time pass until something holds. Nothing takes ten minutes.
func (r *rig) until(what string, holds func() bool) {
	r.Helper()
	for begin := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > patience {
			r.Fatalf("waited for %s for %v", what, patience)
		}
	}
}

// result returns how a member's next generation ended.
func (m *member) result() error {
	m.Helper()
	select {
	case err := <-m.results:
		return err
	case <-time.After(patience):
		m.Fatalf("node %s goes on", m.parts.Self.Short())
		return nil
	}
}

// wantLosses compares the losses of all steps with those of a member that did them alone.
func (r *rig) wantLosses(alone map[plan.Step]uint64) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for step := plan.Step(1); step <= r.run.Train.Steps; step++ {
		if got, there := r.losses[step]; !there || got != alone[step] {
			r.Errorf("step %d has loss %v (made: %t), alone %v", step, math.Float64frombits(got), there, math.Float64frombits(alone[step]))
		}
	}
}

// Step notes a loss. One that differs from another worker's, or from that of the step made before, is an error.
func (m *member) Step(s pipeline.StepResult) {
	m.mu.Lock()
	m.newest = s.Step
	m.mu.Unlock()
	if s.Final {
		return
	}
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	bits := math.Float64bits(s.Loss)
	if p := m.state.Plan; p.Local != nil {
		m.apart[apartStep{p.Generation, s.Stages[0].Replica, s.Step}] = bits
		return
	}
	if before, there := m.losses[s.Step]; there && before != bits {
		m.Errorf("step %d has losses %v and %v", s.Step, math.Float64frombits(before), s.Loss)
	}
	m.losses[s.Step] = bits
}

// Counted notes the run's steps.
func (m *member) Counted(steps []pipeline.StepResult) {
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	for _, s := range steps {
		m.counted[m.parts.Self] = append(m.counted[m.parts.Self], countedStep{s.Step, math.Float64bits(s.Loss)})
	}
}

// Retained, Released, Salvaging and Substituted note what a generation says.
func (m *member) Retained(stages []gossip.RetainedStage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retained = stages
}

func (m *member) Released() { m.Retained(nil) }

func (m *member) Replaying(step plan.Step) { m.replaying.Store(uint64(step)) }

func (m *member) Replayed() { m.replays.Add(1) }

func (m *member) Salvaging(plan.Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.salvages++
}

func (m *member) Substituted(s consensus.Substitute) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.substituted = append(m.substituted, s)
}

// standsIn notes that the member computes a lost one's part.
func (m *member) standsIn(_ plan.WorkerID, step plan.Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stoodIn = append(m.stoodIn, step)
}

// stood returns the steps that the member came to in a lost one's place.
func (m *member) stood() []plan.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stoodIn
}

// step returns the newest step that the member has made.
func (m *member) step() plan.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest
}

// told, left and keptLayers return what the member has noted.
func (m *member) told() []consensus.Substitute {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.substituted
}

func (m *member) left() []gossip.RetainedStage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.retained
}

func (m *member) keptLayers() [][2]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept
}

// squares is a text without a file: windows of a sequence with structure.
type squares struct{ context int }

func (s squares) Micro(_ context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	at := func(i int) int32 { return int32((i*i + i/3) % 61) }
	for b := range batch {
		for t := range s.context {
			i := int(step)*1009 + int(micro)*31 + b*97 + t
			tokens, targets = append(tokens, at(i)), append(targets, at(i+1))
		}
	}
	return tokens, targets, nil
}

func (s squares) HeldOut(ctx context.Context, index, batch int) (tokens, targets []int32, err error) {
	return s.Micro(ctx, 1_000_003, plan.Micro(index), batch)
}
func (s squares) HeldOutMicros(int, int) int            { return 1 }
func (s squares) DocumentStarts(tokens []int32) []int32 { return make([]int32, len(tokens)) }
