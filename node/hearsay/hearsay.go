package hearsay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"pnode/node/ledger"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	protocolCommits = "/pnode/commits/2"
	// every is the time between two rounds of questions, which doubles up to longest while they bring nothing.
	every   = time.Second
	longest = 8 * time.Second
	// askTimeout bounds one question, lookTimeout all that follow each other without a pause, mostPages their rounds, and
	// mostAsked the members of one round.
	askTimeout  = 3 * time.Second
	lookTimeout = 6 * time.Second
	mostAsked   = 8
	mostPages   = 64
	// fruitless rounds are asked for steps that nobody tells of, before they are given up.
	fruitless = 8
	// catchUp bounds CatchUp.
	catchUp = 3 * time.Second
	// mostAgain bounds the commits of steps that were told before, of another generation: more is no run but flooding.
	mostAgain = 1 << 14
)

// Config holds what a Hearsay works with. All fields but Spread are needed.
type Config struct {
	Self  plan.PeerID
	Epoch uint64 // of this process
	Peers Peers
	// State returns the replicated state, Newest the newest step of a plan by its members' heartbeats.
	State  func() consensus.State
	Newest func(p plan.Plan) plan.Step
	// Living returns who may be asked.
	Living func() []plan.PeerID
	Ledger *ledger.Recorder
	// Spread has many members ask different ones first, and wait between two questions; nil is for few.
	Spread func(s consensus.State, self plan.PeerID, first []plan.PeerID) (wait time.Duration, peers []plan.PeerID)
	Log    *slog.Logger
}

// Peers exchanges requests with the members of the run.
type Peers interface {
	// Ask sends request as JSON and returns the answer.
	Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error)
	// Serve answers the requests of a protocol from now on.
	Serve(protocol string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error))
}

// Hearsay writes down what others tell of the steps that this node did not compute. Its methods may be called concurrently.
type Hearsay struct {
	cfg Config

	turn  chan struct{} // capacity 1: whoever has put something in asks, and owns what follows
	at    ledger.Position
	tries int             // rounds in a row that brought nothing
	told  ledger.Position // the first that was told in the newest round; zero for none
	next  time.Time       // of the next round
	top   plan.Step       // newest step that was told
	again int             // commits of steps up to top
	// givenUp is how often the ledger had given steps up when it was looked at last.
	givenUp int
}

// question asks a member for the commits after a position. Lineage is of the log of whoever asks: where a recovery parted it from the
// member's log, both have generations of the same numbers, of which nothing is told.
type question struct {
	After   ledger.Position `json:"after"`
	Lineage plan.Partings   `json:"lineage,omitempty"`
}

// decodeQuestion reads the question of a member.
func decodeQuestion(b []byte) (q question, err error) {
	if err = strict.Decode(b, &q); err == nil && len(q.Lineage) > plan.MaxPartings {
		err = fmt.Errorf("%d recoveries, at most %d", len(q.Lineage), plan.MaxPartings)
	}
	if err != nil {
		return question{}, fmt.Errorf("%w: %w", errBadQuestion, err)
	}
	return q, nil
}

// New returns the Hearsay of a node, which answers others from now on. Its ledger says how far it has come.
func New(c Config) *Hearsay {
	h := &Hearsay{cfg: c, turn: make(chan struct{}, 1)}
	h.at = c.Ledger.End()
	c.Peers.Serve(protocolCommits, func(_ context.Context, _ plan.PeerID, request []byte) ([]byte, error) {
		q, err := decodeQuestion(request)
		if err != nil {
			return nil, err
		}
		return json.Marshal(c.Ledger.Since(q.After, q.Lineage))
	})
	return h
}

// Run asks for what the ledger lacks until ctx ends.
func (h *Hearsay) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.look(ctx, false)
		}
	}
}

// CatchUp asks for what the ledger lacks before this node ends, for a few seconds at most.
func (h *Hearsay) CatchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	tick := time.NewTicker(every / 4)
	defer tick.Stop()
	for h.look(ctx, true) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look asks for what the ledger lacks, and reports whether it lacks something then. Without hurry it does so only where a round
// is due.
func (h *Hearsay) look(ctx context.Context, hurry bool) bool {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return true
	}
	if !hurry && time.Now().Before(h.next) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	before, wait := h.at, time.Duration(0)
	for range mostPages {
		state := h.cfg.State()
		if !h.lacks(state) {
			h.tries = 0
			return false
		}
		page := h.at
		if wait = h.round(ctx, state); h.at == page {
			break
		}
	}
	if h.at != before {
		h.tries = 0
	} else if h.tries++; h.tries >= fruitless {
		h.giveUp(h.cfg.State())
	}
	h.next = time.Now().Add(min(every<<min(h.tries, fruitless), longest) - every/2 + wait)
	return true
}

// lacks reports whether there are commits that this node's own workers do not write down; the caller has the turn.
func (h *Hearsay) lacks(s consensus.State) bool {
	if s.Run == nil || s.Plan.Generation == 0 {
		return false
	}
	if times, back := h.cfg.Ledger.GivenUp(); times != h.givenUp { // what was told since the lineages parted is void, too
		h.at, h.givenUp, h.told, h.top, h.again = back, times, ledger.Position{}, back.Step, 0
	}
	begin := ledger.Position{Generation: s.Plan.Generation, Step: s.Plan.Start}
	if h.at.Generation < begin.Generation && h.at.Step >= begin.Step {
		h.at = begin // nothing lies between
	}
	h.at = h.behindOuterSteps(begin)
	me, member := s.Member(h.cfg.Self)
	if s.Plan.Local != nil || member && me.ProcessEpoch == h.cfg.Epoch && !s.Reborn(me) && s.Plan.Places(h.cfg.Self) { // the log has outer steps
		if own := h.cfg.Ledger.End(); h.at.Generation == begin.Generation && own.Generation == begin.Generation {
			h.at = own
		}
		return h.at.Compare(begin) < 0
	}
	newest := ledger.Position{Generation: begin.Generation, Step: max(begin.Step, s.Checkpoint.Step, h.cfg.Newest(s.Plan))}
	return h.at.Compare(newest) < 0
}

// behindOuterSteps returns where steps may lack that others tell of, up to the begin of a plan: behind those of local steps, whose outer steps the log has.
func (h *Hearsay) behindOuterSteps(begin ledger.Position) ledger.Position {
	at := h.at
	for at.Generation < begin.Generation {
		if p, known := h.cfg.Ledger.PlanOf(at.Generation); !known || p.Local == nil {
			break
		}
		next, known := h.cfg.Ledger.PlanOf(at.Generation + 1)
		switch at.Generation++; {
		case at.Generation == begin.Generation:
			return begin
		case !known:
			return at
		}
		at.Step = next.Start
	}
	return at
}

// round asks members one after the other until two have told of the next commits, or one of so many as can be had, and writes
// down what may be; the caller has the turn. It returns for how long this node then waits, one of many that ask.
func (h *Hearsay) round(ctx context.Context, s consensus.State) (wait time.Duration) {
	v, of := viewOf(s, h.cfg.Ledger.PlanOf), h.cfg.Ledger.Lineage()
	asked := []plan.PeerID{h.cfg.Self, ""}
	var told []statement
	first := append([]plan.PeerID{s.Substitute.Coordinator(s.Plan)}, s.Plan.Peers()...)
	if h.cfg.Spread != nil {
		wait, first = h.cfg.Spread(s, h.cfg.Self, first)
	}
	for _, p := range slices.Concat(first, h.cfg.Living()) {
		if slices.Contains(asked, p) || len(asked) > mostAsked {
			continue
		}
		asked = append(asked, p)
		if said, err := h.ask(ctx, v, p, of); err != nil {
			h.cfg.Log.Debug("ask for commits", "peer", p, "cause", err)
		} else if len(said.word.Commits) > 0 {
			told = append(told, said)
		}
		if len(told) > 1 && v.accept(h.at, told) != h.at {
			break
		}
	}
	h.told = ledger.Position{}
	for _, said := range told {
		if first := said.word.Commits[0].Position(); h.told.Generation == 0 || first.Compare(h.told) < 0 {
			h.told = first
		}
	}
	h.write(told, v.accept(h.at, told), of)
	return wait
}

func (h *Hearsay) ask(ctx context.Context, v view, p plan.PeerID, of plan.Partings) (statement, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := h.cfg.Peers.Ask(ctx, p, protocolCommits, question{h.at, of})
	if err != nil {
		return statement{}, err
	}
	return v.decode(p, h.at, reply)
}

// write puts what was told up to a position into the ledger of a lineage; the caller has the turn.
func (h *Hearsay) write(told []statement, last ledger.Position, of plan.Partings) {
	for _, s := range told {
		part := s.only(h.at, last)
		for _, c := range part.Commits {
			if c.Step <= h.top {
				h.again++
			}
			h.top = max(h.top, c.Step)
		}
		if len(part.Commits) > 0 && h.again <= mostAgain {
			h.cfg.Ledger.Told(s.by, part, of)
		}
	}
	h.at = last
}

// giveUp goes on after steps that the log has a checkpoint of and that nobody who is there tells of; the caller has the turn.
func (h *Hearsay) giveUp(s consensus.State) {
	h.tries = 0
	next := ledger.Position{Generation: s.Plan.Generation, Step: s.Checkpoint.Step}
	if h.told.Generation != 0 && h.told.Step-1 < next.Step {
		next = ledger.Position{Generation: h.told.Generation, Step: h.told.Step - 1}
	}
	if h.at.Step >= next.Step {
		return // they may be told once there is a checkpoint
	}
	h.cfg.Log.Info("the ledger lacks steps that nobody tells of", "after", h.at.Step, "to", next.Step)
	h.at = next
}
