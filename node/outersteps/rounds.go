package outersteps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/gather/seals"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// ErrOver is wrapped by the error of a wait for an outer step that never comes: the plan has ended, or the others went on without the replica.
var ErrOver = errors.New("outersteps: the plan goes on without this replica, or not at all")

// proposeTimeout bounds one proposal. Without an answer it is repeated after againAfter: saying the same again changes nothing.
const (
	proposeTimeout = 10 * time.Second
	againAfter     = time.Second
)

// Log is the replicated log; *consensus.Node implements it.
type Log interface {
	consensus.Log
	Propose(ctx context.Context, e consensus.Entry) error
}

// Config says whose rounds they are.
type Config struct {
	Log     Log
	Plan    plan.Plan // of all replicas
	Replica plan.Replica
	// Words takes in what the replica has handed in.
	Words *Words
	Out   *slog.Logger
}

// Rounds is the log as the workers of one replica here see it. It implements gather.Rounds. Its methods may be called concurrently.
type Rounds struct {
	Config
	mu   sync.Mutex    // guards the rest but more
	have plan.Gathered // what came last; without parts before anything has
	// shown has what shows it, by replica.
	shown []seals.Exhibit
	// accused were found in the round after found to have sent what no honest one does.
	found   plan.Step
	accused []plan.PeerID
	more    chan struct{} // receives a value when have has changed
}

// New returns the rounds of a replica. Run proposes what it has.
func New(c Config) *Rounds { return &Rounds{Config: c, more: make(chan struct{}, 1)} }

// Closed reports whether the round under way ends with the replica's next inner step: where the others go on without it, too.
func (r *Rounds) Closed() bool {
	s := r.Log.State()
	return s.Plan.Generation != r.Plan.Generation || s.Round == nil || s.Round.Closed || !slices.Contains(s.Round.Awaited(), r.Replica)
}

// Have takes in what the replica's coordinator has of a round.
func (r *Rounds) Have(g plan.Gathered, shown []seals.Exhibit) {
	r.mu.Lock()
	r.have, r.shown = g, shown
	r.mu.Unlock()
	r.Words.hear(g, shown)
	select {
	case r.more <- struct{}{}:
	default: // Run will look anyway
	}
}

// Found has heartbeats tell what another replica has sent that no honest one does: of each member the first thing in a round, since all of its messages may be so.
func (r *Rounds) Found(from plan.Step, f plan.Fault) {
	r.mu.Lock()
	if r.found != from {
		r.found, r.accused = from, nil
	}
	known := slices.Contains(r.accused, f.Accused)
	if !known {
		r.accused = append(r.accused, f.Accused)
	}
	r.mu.Unlock()
	if known {
		return
	}
	r.Out.Warn("another replica has sent what no honest one does", "peer", f.Accused, "from", from, "cause", &f)
	r.Words.Accuse(gossip.FoundFault{Generation: r.Plan.Generation, From: from, Fault: f.Told()})
}

// Merged waits for the outer step that ends the round after a step.
func (r *Rounds) Merged(ctx context.Context, from plan.Step) (merged plan.Merged, err error) {
	awaited := consensus.Await(ctx, r.Log, func(s consensus.State) bool {
		switch m := s.Merged; {
		case s.Plan.Generation != r.Plan.Generation:
			err = fmt.Errorf("%w: generation %d has taken over from %d", ErrOver, s.Plan.Generation, r.Plan.Generation)
		case m != nil && m.From == from:
			merged = *m
		case m != nil && m.From > from:
			err = fmt.Errorf("%w: the others have made the outer step of the round after step %d", ErrOver, m.From)
		default:
			return false
		}
		return true
	})
	return merged, errors.Join(err, awaited)
}

// said holds what was proposed of the newest round: it is never anything else. refused says that the log does not take it.
type said struct {
	plan.Gathered
	refused bool
}

// Run proposes what the replica has of each round, until ctx ends.
func (r *Rounds) Run(ctx context.Context) {
	var last said
	for ctx.Err() == nil {
		changed, again := r.Log.Changed(), (<-chan time.Time)(nil)
		if g, ok := r.due(r.Log.State(), last); ok {
			last.Gathered = g
			answered := false
			if answered, last.refused = r.propose(ctx, g); !answered {
				again = time.After(againAfter)
			}
		}
		select {
		case <-changed:
		case <-r.more:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// due returns what is to be proposed in a state; not ok where the log has it or does not take it, or something is missing that is waited for.
func (r *Rounds) due(s consensus.State, last said) (g plan.Gathered, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	round := s.Round
	if s.Plan.Generation != r.Plan.Generation || round == nil || len(r.have.Parts) == 0 || r.have.From != round.From || round.Gathered[r.Replica] != nil {
		return g, false
	}
	if len(last.Parts) > 0 && last.From == round.From {
		return last.Gathered, !last.refused
	}
	awaited := round.Awaited()
	missing := func(q plan.Replica) bool { return r.have.Parts[q].Steps == 0 }
	return r.sealed(round.End - round.From), slices.Contains(awaited, r.Replica) && !slices.ContainsFunc(awaited, missing)
}

// sealed returns what the replica has, with the seals of those that have ended a round of so many steps early. Callers hold mu.
func (r *Rounds) sealed(whole plan.Step) plan.Gathered {
	g := r.have
	for q, part := range g.Parts {
		if part.Steps == 0 || part.Steps >= whole || q >= len(r.shown) {
			continue
		}
		if g.Seals == nil {
			g.Seals = make([]plan.Hash, len(g.Parts))
		}
		g.Seals[q] = r.shown[q].SealSum()
	}
	return g
}

// propose tells the log what the replica has, and reports whether the log has answered, and that it does not take it.
func (r *Rounds) propose(ctx context.Context, g plan.Gathered) (answered, refused bool) {
	asking, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	err := r.Log.Propose(asking, consensus.Gathered(g))
	answered = err == nil || errors.Is(err, consensus.ErrRejected)
	refused = errors.Is(err, consensus.ErrRejected) && !errors.Is(err, consensus.ErrStale) // what is stale the log here follows
	if (!answered || refused) && ctx.Err() == nil {
		r.Out.Warn("the log does not have what a replica has of the others", "replica", r.Replica, "from", g.From, "refused", refused, "cause", err)
	}
	return answered, refused
}
