package ledger

import (
	"crypto/sha256"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"pnode/planner/plan"
)

const (
	// maxMemory bounds the commits of this node's workers that others can still ask for.
	maxMemory = 1 << 14
	// maxMemoryPlans bounds the plans of them.
	maxMemoryPlans = 1 << 8
	// recallBytes is how much of the ledger's end a start reads: about 1.5 million steps.
	recallBytes = 64 << 20

	// MaxWord bounds the commits of one Word, and maxWordBytes their plans, but for the first.
	MaxWord      = 512
	maxWordBytes = 1 << 18
	// maxTellers bounds the tellers that a Recorder need not write again.
	maxTellers = 1 << 8
)

// Word holds what one node says of commits that its own workers took, oldest first, with the plans of their generations.
type Word struct {
	Commits []Committed `json:"commits"`
	Plans   []plan.Plan `json:"plans,omitempty"`
}

// memory holds the newest commits of this node's own workers, and what the whole ledger says of plans and of its end.
type memory struct {
	commits []Committed                            // by position
	plans   map[plan.Generation]plan.Plan          // from the log
	told    map[plan.Generation]map[plan.Hash]bool // digests of plans that others told
	end     Position                               // newest commit, own or told
	reached map[plan.Generation]plan.Step          // the newest commit of each generation up to it
	lineage plan.Partings                          // of the log
	givenUp int                                    // changes of lineage since the start
	back    Position                               // what end was after the newest of them
}

func digestOf(p plan.Plan) plan.Hash { return sha256.Sum256(p.Encode()) }

func newMemory() memory {
	return memory{plans: map[plan.Generation]plan.Plan{}, told: map[plan.Generation]map[plan.Hash]bool{}, reached: map[plan.Generation]plan.Step{}}
}

// recall reads the end of the ledger in a node's folder. Whatever cannot be read is what an audit tells of.
func recall(dir string) memory {
	m := newMemory()
	f, err := os.Open(filepath.Join(dir, FileName))
	if err != nil {
		return m
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > recallBytes {
		if _, err := f.Seek(-recallBytes, io.SeekEnd); err != nil {
			return m
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, recallBytes))
	if err != nil {
		return m
	}
	c := Decode(b)
	for _, p := range c.Plans {
		m.plan(p)
	}
	for _, e := range c.Entries {
		m.took(*e.Work, e.Commit)
	}
	for _, t := range c.Told {
		m.heard(t.Committed)
	}
	for _, o := range c.Outer {
		m.merged(o)
	}
	m.lineage = c.Lineage
	return m
}

// giveUp forgets the generations after one: the log is of another lineage now, which does not share them.
func (m *memory) giveUp(shared plan.Generation, now plan.Partings) {
	after := func(g plan.Generation) bool { return g > shared }
	m.commits = slices.DeleteFunc(m.commits, func(c Committed) bool { return after(c.Generation) })
	maps.DeleteFunc(m.plans, func(g plan.Generation, _ plan.Plan) bool { return after(g) })
	maps.DeleteFunc(m.told, func(g plan.Generation, _ map[plan.Hash]bool) bool { return after(g) })
	maps.DeleteFunc(m.reached, func(g plan.Generation, _ plan.Step) bool { return after(g) })
	m.end = Position{}
	for g, s := range m.reached {
		if p := (Position{g, s}); p.Compare(m.end) > 0 {
			m.end = p
		}
	}
	m.lineage, m.back = now, m.end
	m.givenUp++
}

// plan takes in a plan of the log, or one that a member told of.
func (m *memory) plan(p Planned) {
	g := p.Plan.Generation
	if p.By != "" {
		if m.told[g] == nil {
			m.told[g] = map[plan.Hash]bool{}
		}
		m.told[g][digestOf(p.Plan)] = true
		return
	}
	m.plans[g] = p.Plan
	dropOldest(m.plans)
}

// dropOldest keeps the newest maxMemoryPlans generations.
func dropOldest[V any](of map[plan.Generation]V) {
	for len(of) > maxMemoryPlans {
		delete(of, slices.Min(slices.Collect(maps.Keys(of))))
	}
}

// took takes in a commit of this node's own workers. Those of replays were others', and those of local steps do not count yet.
func (m *memory) took(w Work, c Commit) {
	at := Committed{w.Generation, c}
	if n := len(m.commits); w.Replayed() || w.Replica != nil || n > 0 && m.commits[n-1].Position().Compare(at.Position()) >= 0 {
		return
	}
	m.commits = append(m.commits, at)
	if len(m.commits) >= 2*maxMemory {
		m.commits = slices.Clone(m.commits[len(m.commits)-maxMemory:])
	}
	m.heard(at)
}

// merged takes in an outer step.
func (m *memory) merged(o Outer) { m.heard(Committed{o.Generation, Commit{Step: o.To}}) }

// heard takes in a commit of anybody's.
func (m *memory) heard(c Committed) {
	if c.Position().Compare(m.end) > 0 {
		m.end = c.Position()
		m.reached[c.Generation] = c.Step
		dropOldest(m.reached)
	}
}

// since returns the oldest commits after a position that this node's own workers took, of the generations that its log shares with one
// of a lineage.
func (m *memory) since(after Position, of plan.Partings) Word {
	i, found := slices.BinarySearchFunc(m.commits, after, func(c Committed, p Position) int { return c.Position().Compare(p) })
	if found {
		i++
	}
	var w Word
	size := 0
	shared, parted := m.lineage.Since(of)
	for _, c := range m.commits[i:min(len(m.commits), i+MaxWord)] {
		if parted && c.Generation > shared {
			break // another plan has the number there
		}
		p, known := m.plans[c.Generation]
		if !known {
			continue
		}
		if n := len(w.Plans); n == 0 || w.Plans[n-1].Generation != c.Generation {
			if size += len(p.Encode()); n > 0 && size > maxWordBytes {
				break
			}
			w.Plans = append(w.Plans, p)
		}
		w.Commits = append(w.Commits, c)
	}
	return w
}

// End returns the position of the newest commit in the ledger.
func (r *Recorder) End() Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memory.end
}

// GivenUp returns how often since the start steps were given up, and what was the newest commit after the last time.
func (r *Recorder) GivenUp() (times int, back Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memory.givenUp, r.memory.back
}

// Lineage returns which lineage the log is of whose steps are recorded.
func (r *Recorder) Lineage() plan.Partings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.memory.lineage)
}

// Since returns the oldest commits after a position that this node's own workers took, at most MaxWord of them. Whoever asks has a log of
// some lineage: commits of generations that it does not share with this node's log are left out.
func (r *Recorder) Since(after Position, of plan.Partings) Word {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memory.since(after, of)
}

// PlanOf returns the plan of a generation, where this node learned it from the log.
func (r *Recorder) PlanOf(g plan.Generation) (p plan.Plan, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok = r.memory.plans[g]
	return p, ok
}

// Told records commits that a member told of, with the plans of them that the log has not told here. They were asked for while the log
// was of some lineage: where it is of another one by now, nothing is recorded.
func (r *Recorder) Told(by plan.PeerID, w Word, of plan.Partings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, parted := r.memory.lineage.Since(of); parted {
		return
	}
	var b []byte
	for _, p := range w.Plans {
		if known, ok := r.memory.plans[p.Generation]; ok && digestOf(known) == digestOf(p) || r.memory.told[p.Generation][digestOf(p)] {
			continue
		}
		told := Planned{Plan: p, By: by}
		b = appendJSON(b, kindPlan, told)
		r.memory.plan(told)
	}
	for _, c := range w.Commits {
		t := Teller{c.Generation, by}
		key, known := r.tellers[t]
		if !known {
			payload := marshal(t)
			b, key = appendRecord(b, kindTeller, payload), keyOf(payload)
			if len(r.tellers) >= maxTellers {
				clear(r.tellers)
			}
			r.tellers[t] = key
		}
		b = appendEntry(b, key, c.Commit)
		r.memory.heard(c)
	}
	r.append(b)
}
