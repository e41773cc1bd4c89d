package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"reflect"
	"sync"

	"pnode/node/api"
	"pnode/node/ledger"
	"pnode/planner/plan"
)

// truth checks what every node of a fleet says against a run of one node that nothing disturbs. It may be used from any
// goroutine.
type truth struct {
	commits map[plan.Step]ledger.Commit // of the undisturbed run; nil while it is that run, and of local steps, where the log decides what is made
	weights map[int][]plan.Hash         // after its last step

	mu      sync.Mutex // guards what follows
	problem error      // the first
	plans   map[numbered[plan.Generation]][sha256.Size]byte
	led     map[numbered[plan.Term]]plan.PeerID
	newest  plan.Step
	told    map[string]plan.Step // by a node, the newest
}

// numbered is a generation or a term of one lineage of the log: others have the same numbers.
type numbered[N any] struct {
	lineage string
	number  N
}

func newTruth() *truth {
	return &truth{plans: map[numbered[plan.Generation]][sha256.Size]byte{}, led: map[numbered[plan.Term]]plan.PeerID{}, told: map[string]plan.Step{}}
}

// again returns what checks another run against the same one.
func (t *truth) again() *truth {
	other := newTruth()
	other.commits, other.weights = t.commits, t.weights
	return other
}

// see takes in an event of a node: its losses are the undisturbed run's to the bit, and its plan is everybody's.
func (t *truth) see(name string, n *Node, e api.Event) {
	t.leads(n)
	state := n.raft.State()
	current := state.Plan
	sum, made := sha256.Sum256(current.Encode()), numbered[plan.Generation]{state.Partings.Of(current.Generation), current.Generation}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.plans[made]; ok && known != sum {
		t.note("%s has another plan of generation %d than the others", name, current.Generation)
	}
	t.plans[made] = sum
	if e.Kind != api.KindStep {
		return
	}
	t.newest, t.told[name] = max(t.newest, e.Step), max(t.told[name], e.Step)
	if want, known := t.commits[e.Step]; known && math.Float64bits(e.Loss) != want.LossBits {
		t.note("%s: step %d of generation %d has loss %v, undisturbed %v", name, e.Step, e.Generation, e.Loss, want.Loss())
	}
}

// leads notes whether a node leads, which in a term of the log one alone may. A node that goes over to a recovered run's log
// tells the term of one log and the state of another until the log says that it is the recovered run's, which means nothing.
func (t *truth) leads(n *Node) {
	lineage := lineageOf(n.raft.State().Recovery)
	_, number, leads := n.raft.Leader()
	now := lineage
	if c, ok := n.raft.ChangedOver(); ok {
		now = lineageOf(c.Recovery)
	}
	if now != lineage || lineageOf(n.raft.State().Recovery) != lineage {
		return
	}
	term := numbered[plan.Term]{lineage, number}
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.led[term]; leads && other != "" && other != n.self {
		t.note("%s and %s lead in term %d", other, n.self, number)
	}
	if leads {
		t.led[term] = n.self
	}
}

// fails notes what somebody else has found wrong.
func (t *truth) fails(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(format, args...)
}

// note keeps the first problem; the caller holds mu.
func (t *truth) note(format string, args ...any) {
	if t.problem == nil {
		t.problem = fmt.Errorf(format, args...)
	}
}

func (t *truth) wrong() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.problem
}

// reached returns the newest step that a node has told.
func (t *truth) reached() plan.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest
}

// has reports whether a node has told the newest step.
func (t *truth) has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told[name] == t.newest
}

// settle takes what an undisturbed run has left in its folder as the truth.
func (t *truth) settle(dir string, last plan.Step) error {
	c, err := ledger.Read(dir)
	if err != nil {
		return err
	}
	t.commits = map[plan.Step]ledger.Commit{}
	for _, e := range c.Entries {
		t.commits[e.Step] = e.Commit
	}
	if len(t.commits) != int(last) {
		return fmt.Errorf("%d commits in the ledger of a run of %d steps", len(t.commits), last)
	}
	t.weights, err = StoredState(dir, last)
	return err
}

// soFar checks the ledgers of nodes that may run: no sample entered twice, and every commit is the undisturbed run's.
func (t *truth) soFar(dirs []string, run plan.RunSpec) error {
	nodes, err := t.ledgers(dirs)
	if err != nil {
		return err
	}
	if report := ledger.Audit(ledger.SizeOf(run), nodes); report.Doubled > 0 {
		return fmt.Errorf("the ledgers: %d samples doubled: %q", report.Doubled, report.Problems)
	}
	return nil
}

// ledgers reads what nodes have computed, and checks every commit against the undisturbed run's.
func (t *truth) ledgers(dirs []string) (nodes []ledger.Node, err error) {
	for _, dir := range dirs {
		c, err := ledger.Read(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no plan has come there
		}
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, ledger.Node{Dir: dir, Contents: c})
		for _, e := range c.Entries {
			if want := t.commits[e.Step]; t.commits != nil && e.Commit != want {
				return nil, fmt.Errorf("%s: step %d of generation %d has commit %v, undisturbed %v", filepath.Base(dir), e.Step, e.Work.Generation, e.Commit, want)
			}
		}
		for _, e := range c.Told {
			if want := t.commits[e.Step]; t.commits != nil && e.Commit != want {
				return nil, fmt.Errorf("%s: %s told that step %d of generation %d has commit %v, undisturbed %v", filepath.Base(dir), e.By, e.Step, e.Generation, e.Commit, want)
			}
		}
	}
	return nodes, nil
}

// audit checks the folders of all nodes of a run that has ended: every sample of every step entered once, every commit is
// the undisturbed run's, the model of the last step has its weights, and it returns how many steps were computed again.
func (t *truth) audit(dirs []string, owner string, run plan.RunSpec) (redone int, err error) {
	nodes, err := t.ledgers(dirs)
	if err != nil {
		return 0, err
	}
	report := ledger.Audit(ledger.SizeOf(run), nodes)
	for _, r := range report.Redone {
		redone += int(r.Last-r.First) + 1
	}
	switch last := plan.Step(len(t.commits)); {
	case len(report.Problems) > 0 || report.Lost+report.Doubled > 0 || report.Steps != last:
		return redone, fmt.Errorf("the ledgers: %d steps of %d, %d samples lost, %d doubled: %q", report.Steps, last, report.Lost, report.Doubled, report.Problems)
	default:
		got, err := StoredState(owner, last)
		if err == nil && !reflect.DeepEqual(got, t.weights) {
			err = fmt.Errorf("the model of step %d differs from the undisturbed run's", last)
		}
		return redone, err
	}
}
