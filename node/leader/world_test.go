package leader

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// look is the time between two of the leader's looks.
const look = decideEvery

// world is a model of a run: its members, the log, and what the leader sees of them. It checks each verdict:
//   - nobody is marked gone who was heard within DeadAfter, unless its process has ended;
//   - no plan starts from an older step than the living offer, but for what they did not save in time, unless the leader has asked for
//     salvages often enough;
//   - once nothing happens any more, a plan runs on members that live, and the rule comes to rest.
type world struct {
	*rand.Rand
	counts  map[string]int
	tell    func(string, ...any)
	now     time.Duration
	members []*worldMember
	replays bool // the members keep the messages by which the lost are replayed

	// The log.
	plan       plan.Plan
	peers      []plan.PeerID // of the plan
	checkpoint plan.Step
	salvage    *consensus.Salvage
	paused     bool
	saved      bool // the pause has
	stored     map[int]bool

	// The leader's memory.
	brokenAt, salvagedAt, pausedAt time.Duration
	salvages, plans                int
	newest                         plan.Step
	late                           map[promise]bool
}

type worldMember struct {
	peer        plan.PeerID
	state       consensus.MemberState
	alive, cut  bool
	idle        bool // it offers its state, and saves nothing
	reborn      bool // after the plan
	endedKnown  bool // its operating system has said so
	heard       time.Duration
	running     plan.Generation
	stops       time.Duration // when it notices that the generation is broken; 0 is never
	stalled     plan.Generation
	stalledAt   time.Duration
	offers      []offer // as last heard
	savesAt     time.Duration
	saving      *consensus.Salvage
	accusesGone []plan.PeerID
}

const worldLayers = 6

func newWorld(r *rand.Rand, counts map[string]int) *world {
	w := &world{Rand: r, counts: counts, tell: func(string, ...any) {}, replays: r.IntN(2) == 0}
	for i := range 2 + r.IntN(5) {
		w.members = append(w.members, &worldMember{peer: plan.PeerID(rune('a' + i)), state: consensus.Active, alive: true, idle: r.IntN(8) == 0})
	}
	return w
}

// play lets random things happen for a while, and then nothing.
func (w *world) play() error {
	const quietLooks, most = 30, 8000
	events := 1 + w.IntN(8)
	quiet := 0
	for range most {
		w.now += look
		if events > 0 && w.plan.Generation > 0 && w.IntN(12) == 0 {
			w.happen()
			events--
			quiet = 0
		}
		w.live()
		v := w.view()
		got := decide(v)
		if err := w.carryOut(v, got); err != nil {
			return fmt.Errorf("after %v: %w", w.now, err)
		}
		if quiet++; got.Gone != "" || got.Plan || got.Salvage != nil || got.Prepare || got.Pause || got.Rollback != 0 || v.broken() {
			quiet = 0
		}
		if events == 0 && quiet >= quietLooks {
			return w.rests(got)
		}
	}
	return fmt.Errorf("no rest after %v, with %d generations: %s", w.now, w.plan.Generation, w.describe())
}

// happen has one random thing happen to a member other than the leader's.
func (w *world) happen() {
	m := w.members[1+w.IntN(len(w.members)-1)]
	switch w.IntN(7) {
	case 0, 1, 2:
		if !m.alive {
			m.alive, m.reborn, m.endedKnown, m.cut = true, true, false, false
			m.state, m.running, m.stalled, m.offers, m.heard = consensus.Active, 0, 0, nil, w.now
			w.tell("%v %s comes back", w.now, m.peer)
			return
		}
		m.alive = false
		m.endedKnown = w.IntN(2) == 0
		w.tell("%v %s dies, known %v", w.now, m.peer, m.endedKnown)
	case 3, 4:
		m.cut = m.alive && !m.cut
		w.tell("%v %s cut off: %v", w.now, m.peer, m.cut)
	case 5:
		if m.alive && m.state == consensus.Active {
			m.state = consensus.Draining
			w.tell("%v %s leaves", w.now, m.peer)
		}
	default:
		if len(w.members) < 8 {
			p := plan.PeerID(rune('a' + len(w.members)))
			w.members = append(w.members, &worldMember{peer: p, state: consensus.Active, alive: true, reborn: true, heard: w.now})
			w.tell("%v %s joins", w.now, p)
		}
	}
}

func (m *worldMember) reachable() bool { return m.alive && !m.cut }

func (w *world) member(p plan.PeerID) *worldMember {
	return w.members[slices.IndexFunc(w.members, func(m *worldMember) bool { return m.peer == p })]
}

func (w *world) places(p plan.PeerID) bool { return slices.Contains(w.peers, p) }

// carries reports whether all members of the plan carry it out.
func (w *world) carries() bool {
	return w.plan.Generation > 0 && !slices.ContainsFunc(w.peers, func(p plan.PeerID) bool {
		m := w.member(p)
		return !m.reachable() || m.running != w.plan.Generation
	})
}

// live lets all members do what they do between two looks.
func (w *world) live() {
	for _, m := range w.members {
		if !m.reachable() {
			continue
		}
		m.heard = w.now
		if m.state == consensus.Gone { // it comes back by itself
			m.state, m.reborn, m.running, m.stalled, m.offers = consensus.Active, true, 0, 0, nil
		}
		if w.places(m.peer) && !m.reborn && m.running != w.plan.Generation && m.stalled != w.plan.Generation {
			m.running, m.stalled, m.offers, m.accusesGone, m.stops = w.plan.Generation, 0, nil, nil, 0
		}
	}
	switch {
	case w.carries():
		for _, m := range w.members {
			m.stops = 0
		}
		if !w.saved {
			w.step()
		}
	case w.plan.Generation > 0:
		w.breaks()
	}
	w.save()
}

// step takes a step in half of the looks, and saves every fifth, or the newest before a pause.
func (w *world) step() {
	if w.IntN(2) == 0 {
		w.newest++
	}
	if w.newest%5 == 0 && w.newest > w.checkpoint {
		w.checkpoint, w.plans = w.newest, 0
	}
	if w.paused && w.IntN(3) == 0 {
		w.checkpoint, w.saved, w.plans = max(w.newest, w.checkpoint), true, 0
	}
}

// breaks has the members of a plan that is not carried out any more notice it, each after a while, and at once where the
// log says that somebody is gone.
func (w *world) breaks() {
	var away []plan.PeerID
	known := false
	for _, p := range w.peers {
		if m := w.member(p); !m.reachable() || m.reborn {
			away = append(away, p)
			known = known || m.state == consensus.Gone || m.reborn
		}
	}
	for _, p := range w.peers {
		m := w.member(p)
		if m.running != w.plan.Generation || m.stalled == w.plan.Generation || !m.alive {
			continue
		}
		if m.stops == 0 {
			m.stops = w.now + time.Duration(w.IntN(30))*look
		}
		if !known && w.now < m.stops {
			continue
		}
		m.stalled, m.stalledAt, m.running, m.accusesGone = w.plan.Generation, w.now, 0, away
		m.offers = nil
		for _, id := range stagesOf(w.plan, p) {
			o := offer{By: p, StageID: id, Step: w.newest}
			if w.IntN(4) == 0 && w.newest > w.plan.Start { // it lacks the last commit
				o.Step, o.Pending = w.newest-1, w.newest
			}
			m.offers = append(m.offers, o)
		}
	}
}

// stagesOf lists the stages of a peer.
func stagesOf(p plan.Plan, peer plan.PeerID) (ids []plan.StageID) {
	for _, w := range p.Workers() {
		if w.Peer == peer {
			ids = append(ids, p.StagesOf(w)...)
		}
	}
	return ids
}

// save has whoever the log's salvage names save their parts, each after a while.
func (w *world) save() {
	if w.salvage == nil || w.checkpoint >= w.salvage.Step {
		return
	}
	for _, part := range w.salvage.Parts {
		m := w.member(part.By)
		if !m.reachable() || m.reborn || m.stalled != w.plan.Generation || m.idle {
			continue
		}
		if m.saving != w.salvage {
			m.saving, m.savesAt = w.salvage, w.now+time.Duration(1+w.IntN(10))*look
		}
		if w.now >= m.savesAt {
			for l := part.Layers.First; l < part.Layers.End; l++ {
				w.stored[l] = true
			}
		}
	}
	if len(w.stored) == worldLayers {
		w.checkpoint = w.salvage.Step
		w.counts["salvaged"]++
		w.tell("%v step %d is salvaged", w.now, w.checkpoint)
	}
}

// view returns what the leader sees.
func (w *world) view() view {
	v := view{
		Plan: w.plan, Checkpoint: w.checkpoint, Newest: w.newest, MinNodes: 1, MinDevices: 1, Names: map[plan.PeerID]string{},
		pause:   pause{Paused: w.paused, Saved: w.saved, SavePatience: savePatience(time.Second, proposeTimeout)},
		remains: remains{Layers: worldLayers, Salvage: w.salvage, Stored: w.stored, Salvages: w.salvages, ReplayPatience: time.Minute},
		Stall:   stall{Patience: min(stallGrace<<min(w.plans, 5), time.Minute), Plans: w.plans},
	}
	if w.paused {
		v.PausedFor = w.now - w.pausedAt
	}
	if w.salvage != nil {
		v.SalvagedFor = w.now - w.salvagedAt
		if w.checkpoint < w.salvage.Step && v.SalvagedFor > v.SavePatience+v.ReplayPatience {
			w.late = lateBy(w.late, *w.salvage, w.stored)
		}
	}
	for _, m := range w.members {
		if m.state == consensus.Gone {
			continue
		}
		v.Members = append(v.Members, memberView{
			Peer: m.peer, Active: m.state == consensus.Active, Leaving: m.state == consensus.Draining, Restarted: m.reborn,
			Silent: w.now - m.heard, Ended: m.endedKnown && !m.alive, Devices: 1,
		})
		if m.reborn && m.state == consensus.Active && !w.places(m.peer) {
			v.Better = string(m.peer) + " helps"
		}
		if m.reborn || !w.places(m.peer) || m.stalled != w.plan.Generation || w.plan.Generation == 0 || m.cut && m.stalledAt > m.heard {
			continue
		}
		v.Stall.For = max(v.Stall.For, w.now-m.stalledAt+look)
		v.Stall.By = append(v.Stall.By, m.peer)
		v.Offers = append(v.Offers, slices.DeleteFunc(slices.Clone(m.offers), func(o offer) bool { return w.late[promise{o.By, o.StageID}] })...)
		for _, p := range m.accusesGone {
			v.Trial.Accusations = append(v.Trial.Accusations, accusation{By: m.peer, Fault: plan.Fault{Accused: p, Kind: plan.LostLink}})
		}
	}
	v.Stall.Why = "lost"
	v.Trial.Name = func(p plan.PeerID) string { return string(p) }
	if w.replays && len(v.Offers) > 0 {
		v.Offers = append(v.Offers, w.replayOffers(v.Offers)...)
	}
	if !v.broken() {
		w.brokenAt, w.salvages, w.late = w.now, 0, nil
	}
	v.BrokenFor = w.now - w.brokenAt
	return v
}

// replayOffers has the first member that lives offer to replay all stages that are lost, unless it did not save one of them in time.
func (w *world) replayOffers(own []offer) (all []offer) {
	var lost []plan.StageID
	for i, pipe := range w.plan.Replicas {
		for s, place := range pipe.Stages {
			id := plan.StageID{Replica: plan.Replica(i), Stage: plan.Stage(s)}
			if w.late[promise{place.Peer, id}] || !slices.ContainsFunc(own, func(o offer) bool { return o.By == place.Peer }) {
				lost = append(lost, id)
			}
		}
	}
	able := slices.DeleteFunc(slices.Clone(own), func(o offer) bool {
		return slices.ContainsFunc(lost, func(id plan.StageID) bool { return w.late[promise{o.By, id}] })
	})
	for _, id := range lost[:len(lost)*min(1, len(able))] {
		all = append(all, offer{By: able[0].By, StageID: id, Replay: true, From: w.checkpoint})
	}
	return all
}

// carryOut checks a verdict, and does what it says.
func (w *world) carryOut(v view, got verdict) error {
	if got.Gone != "" || got.Plan || got.Salvage != nil || got.Pause || got.Rollback != 0 {
		w.tell("%v checkpoint %d, newest %d: %s", w.now, w.checkpoint, w.newest, described(got))
	}
	switch {
	case got.Gone != "":
		return w.markGone(got)
	case got.Salvage != nil:
		w.salvage, w.salvagedAt, w.stored = got.Salvage, w.now, map[int]bool{}
		w.salvages++
		w.counts["salvage"]++
		if len(w.late) > 0 {
			w.counts["again"]++
		}
		if slices.ContainsFunc(got.Salvage.Parts, func(p consensus.SalvagePart) bool {
			return p.By != w.plan.At(plan.StageID{Replica: p.Replica, Stage: p.Stage}).Peer
		}) {
			w.counts["replay"]++
		}
	case got.Pause:
		w.paused, w.saved, w.pausedAt = true, false, w.now
		w.counts["pause"]++
	case got.Rollback != 0:
		return fmt.Errorf("back to step %d without need", got.Rollback)
	case got.Plan:
		if best, ok := salvageOf(v.Plan, v.Layers, v.Checkpoint, v.Offers); ok && v.broken() && w.salvages < mostSalvages {
			return fmt.Errorf("a plan from step %d, where the living offer %s", v.Checkpoint, told(best, ok))
		}
		w.planAgain()
	}
	return nil
}

// markGone checks that nobody is marked gone who was heard lately.
func (w *world) markGone(got verdict) error {
	m := w.member(got.Gone)
	switch {
	case got.Ended && m.alive:
		return fmt.Errorf("%s is marked gone, whose process lives", m.peer)
	case !got.Ended && w.now-m.heard <= DeadAfter:
		return fmt.Errorf("%s is marked gone, which was heard %v ago", m.peer, w.now-m.heard)
	case got.Doubt && m.alive:
		w.counts["doubt"]++
		return nil // its host does not say that the process has ended
	}
	m.state = consensus.Gone
	if w.counts["gone"]++; got.Ended {
		w.counts["ended"]++
	}
	return nil
}

// planAgain makes a plan of the members that are active, in random places.
func (w *world) planAgain() {
	var peers []plan.PeerID
	for _, m := range w.members {
		if m.state == consensus.Active {
			peers = append(peers, m.peer)
		}
		m.reborn, m.stalled, m.running, m.offers, m.stops = false, 0, 0, nil, 0
	}
	g := w.plan.Generation + 1
	w.plan = randomPlan(w.Rand, peers, worldLayers)
	w.plan.Generation, w.plan.Start, w.peers = g, w.checkpoint, w.plan.Peers()
	w.brokenAt, w.salvages, w.late = w.now, 0, nil
	w.newest, w.salvage, w.stored, w.paused, w.saved = w.checkpoint, nil, nil, false, false
	w.plans++
	w.counts["plan"]++
}

// rests returns what is wrong with a world in which the rule has nothing more to do.
func (w *world) rests(got verdict) error {
	if w.carries() || got.Blocked != "" {
		return nil
	}
	if !slices.ContainsFunc(w.members, func(m *worldMember) bool { return m.state == consensus.Active }) {
		return nil
	}
	return fmt.Errorf("it rests, and nothing runs: %s", w.describe())
}

func (w *world) describe() string {
	text := fmt.Sprintf("plan %+v, checkpoint %d, salvage %+v", w.plan, w.checkpoint, w.salvage)
	for _, m := range w.members {
		text += fmt.Sprintf("; %s %s alive %v cut %v reborn %v runs %d stalled %d", m.peer, m.state, m.alive, m.cut, m.reborn, m.running, m.stalled)
	}
	return text
}

func described(v verdict) string {
	var words []string
	if v.Gone != "" {
		words = append(words, fmt.Sprintf("%s gone, doubt %v: %s", v.Gone, v.Doubt, v.Why))
	}
	if v.Salvage != nil {
		words = append(words, "salvage "+told(*v.Salvage, true))
	}
	if v.Pause || v.Plan {
		words = append(words, fmt.Sprintf("pause %v, plan %v: %s", v.Pause, v.Plan, v.Why))
	}
	return strings.Join(words, ", ")
}
