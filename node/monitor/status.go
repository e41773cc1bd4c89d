package monitor

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/node/ledger"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// longestETA bounds the time to the end in seconds: a heartbeat may report any rate above 0.
const longestETA = 1e10

// loggedState keeps what the log of a node says that was started again and is not led yet.
type loggedState struct {
	mu    sync.Mutex // guards what follows
	since time.Time  // no leader is known
	state consensus.State
}

// Known returns the state of the run as this node knows it. While it comes back and nobody says what of its log is committed, that is the
// state by all of the log, and returning is true.
func (m *Monitor) Known() (state consensus.State, returning bool) {
	state = m.Consensus.State()
	lost := m.Consensus.Quorum().LostSince
	if me, _ := state.Member(m.Self); state.Run != nil && (me.ProcessEpoch == m.Epoch || lost.IsZero()) {
		return state, false
	}
	m.logged.mu.Lock()
	defer m.logged.mu.Unlock()
	if m.logged.state.Run == nil || !m.logged.since.Equal(lost) {
		logged, err := m.Consensus.Logged()
		if err != nil {
			m.Log.Debug("the log up to its end", "cause", err)
		}
		m.logged.since, m.logged.state = lost, logged
	}
	if m.logged.state.Run == nil {
		return state, false // a newcomer
	}
	return m.logged.state, true
}

// reached returns the newest step that a node knows of: of a generation since its start, or else as its log and the record of the
// process before say.
func reached(state consensus.State, running position, recorded ledger.Position) plan.Step {
	switch {
	case running.Generation != 0 || state.Run == nil:
		return running.Step
	case recorded.Generation == state.Plan.Generation:
		return max(state.Checkpoint.Step, recorded.Step)
	}
	return state.Checkpoint.Step // steps of an older plan were given up
}

// sizeOf returns the size of a checkpoint's layers, those that replicas have for themselves included.
func sizeOf(c consensus.Checkpoint) (bytes int64) {
	layers := slices.Clone(c.Layers)
	for _, o := range c.Own {
		layers = append(layers, o.Layers...)
	}
	for _, l := range layers {
		bytes += l.SizeBytes
	}
	return bytes
}

// Status returns a snapshot of what this node knows of its run.
func (m *Monitor) Status() api.Status {
	state, returning := m.Known()
	now := time.Now()
	leader, term, _ := m.Consensus.Leader()
	m.mu.Lock()
	phase := m.phase
	m.mu.Unlock()
	s := api.Status{
		Run: m.Run, Peer: m.Self, State: phase, Generation: state.Plan.Generation,
		Term: term, Leader: leader, Addrs: m.Addrs(), Reasons: state.Reasons,
		Checkpoint: api.Checkpoint{Step: state.Checkpoint.Step, Time: state.Checkpoint.Time(), SizeBytes: sizeOf(state.Checkpoint), Copies: copiesOf(state, m.Kept())},
		Roster:     m.members(state, leader, now), Plan: m.stages(state),
		Votes: votes(state, m.Consensus.Quorum().Voters), Substitute: substituteStatus(state),
	}
	why, done, kind := m.waiting(state, now)
	s.Waiting, s.WaitingFor = why+done, kind
	s.Hints = m.Beats.Hints(leader, state.Plan.Generation)
	if w := m.Beats.Wish(leader); w.Generation == state.Plan.Generation && w.Generation != 0 {
		s.Reasons = append(s.Reasons[:len(s.Reasons):len(s.Reasons)], "schedule changed: "+w.Why)
	}
	if !returning && !away(m.Beats, state.Substitute.Coordinator(state.Plan), now) { // else nothing is made
		s.Checkpoint.Cadence, s.Checkpoint.Saving = cadenceOf(state, m.Beats)
	}
	s.Whole = m.whole(state, now).where()
	if state.Plan.PostValidation {
		optimistic, rolledBack := m.steps.postValidation()
		s.PostValidation = describePostValidation(optimistic, rolledBack)
	}
	view := roundView{state, m.Beats, now}
	s.Replicas, s.Round, s.Outer = view.replicas(), view.round(), m.outer.status(m.Beats, m.Self)
	if m.Sensors != nil {
		s.Sensors = m.Sensors()
	}
	m.fillProgress(&s, state)
	m.fillPlan(&s, state)
	fillNames(&s, state)
	return s
}

// fillNames adds what people call nodes and devices, wherever a status has their IDs.
func fillNames(s *api.Status, state consensus.State) {
	names := consensus.NamesOf(state)
	s.Name, s.LeaderName = names[s.Peer], names[s.Leader]
	for i := range s.Plan {
		at := &s.Plan[i]
		at.Name, at.Title = names[at.Peer], consensus.TitleOf(state, plan.WorkerID{Peer: at.Peer, Device: at.Device})
	}
	s.Seats = slices.Clone(s.Seats)
	for i := range s.Seats {
		at := &s.Seats[i]
		at.Name, at.Title = names[at.Peer], consensus.TitleOf(state, plan.WorkerID{Peer: at.Peer, Device: at.Device})
	}
	for i := range s.Links {
		l := &s.Links[i]
		l.FromName, l.ToName = names[l.From], names[l.To]
	}
	for i := range s.Replicas {
		s.Replicas[i].Name = names[s.Replicas[i].Peer]
	}
	if sub := s.Substitute; sub != nil {
		sub.LostName, sub.ByName = names[sub.Lost], names[sub.By]
	}
}

// describePostValidation says what a node did with the steps of a plan that need not wait for their commit.
func describePostValidation(optimistic, rolledBack int) *api.PostValidation {
	text := fmt.Sprintf("of this plan this node has applied %s before the commit, %d rolled back", plan.Count(optimistic, "step"), rolledBack)
	return &api.PostValidation{Optimistic: optimistic, RolledBack: rolledBack, Text: text}
}

// tokensPerStep returns the tokens of one step of a run.
func tokensPerStep(run plan.RunSpec) int {
	return run.Train.Micros * run.Train.MicroBatch * run.Model.Context
}

// fillProgress uses this node's own log, or the newest step that a heartbeat reports.
func (m *Monitor) fillProgress(s *api.Status, state consensus.State) {
	newest := m.steps.current()
	running := position{newest.Generation, newest.Step}
	s.Step, s.HeldOut, s.HeldOutF32, s.TokensPerS = reached(state, running, m.Recorded()), newest.HeldOut, newest.HeldOutF32, newest.TokensPerS
	loss, norm := newest.Loss, newest.GradientNorm
	for _, member := range state.Members {
		b, ok := m.Beats.Last(member.Peer)
		if ok && b.Generation == s.Generation && b.Step > s.Step {
			s.Step, s.TokensPerS, norm = b.Step, b.TokensPerS, nil
			if b.Loss != 0 {
				loss = b.Loss
			}
		}
	}
	if loss != 0 { // 0 before the first step
		s.Loss = &loss
	}
	if state.Run == nil {
		return
	}
	s.Steps, s.Samples = state.Run.Train.Steps, samplesOf(state, s.Step)
	if s.Step > 0 {
		s.LearningRate, s.GradientNorm = pipeline.LearningRate(state.Run.Train, s.Step), norm
	}
	d := state.Run.Data
	s.Data = api.Data{SizeBytes: d.SizeBytes, HeldOutBytes: d.SizeBytes * int64(d.HeldOutPermille) / 1000}
	if s.TokensPerS > 0 && s.Steps >= s.Step {
		s.ETAS = min(float64(s.Steps-s.Step)*float64(tokensPerStep(*state.Run))/s.TokensPerS, longestETA)
	}
}

// samplesOf returns how many sequences have entered the model by the log, as an audit of ledgers counts them: each step takes those of all its
// micro-batches; local steps count as far as an outer step has them, and the samples of others come back.
func samplesOf(state consensus.State, newest plan.Step) int64 {
	from, stream := state.Plan.Start, state.Plan.Stream
	if m := state.Merged; m != nil && m.Generation == state.Plan.Generation {
		from, stream = m.To, m.Stream
	}
	t := state.Run.Train
	taken := stream.Full(from, t.Micros).Taken()
	if state.Plan.Local == nil {
		taken += (int64(newest) - int64(from)) * int64(t.Micros)
	}
	return taken * int64(t.MicroBatch)
}

func (m *Monitor) members(state consensus.State, leader plan.PeerID, now time.Time) []api.Member {
	var members []api.Member
	claims, spares := map[plan.PeerID]string{}, spareTexts(state, m.Beats.Spares(leader, state.Plan.Generation))
	for _, c := range state.Counted() {
		claims[c.Peer] = c.Text()
	}
	names, placed, gone := consensus.NamesOf(state), placedBy(state.Plan), m.departed.all()
	for _, r := range state.Members {
		member := api.Member{
			Peer: r.Peer, Name: names[r.Peer], State: string(r.State), Addrs: r.Addrs, Self: r.Peer == m.Self,
			Leader: r.Peer == leader, Device: describeDevices(r.Profile), Kind: kindOf(r.Profile), NotUsed: notUsed(state, r, now), Spare: spares[r.Peer], Placed: placed[r.Peer],
			GoneSince: gone[r.Peer],
		}
		if r.State == consensus.Gone || r.State == consensus.Draining {
			member.Reason = r.Reason
		}
		if text := claims[r.Peer]; text != "" {
			member.Device += "; " + text
		}
		if ago, heard := m.Beats.Ago(r.Peer, now); heard && !member.Self {
			member.LastSeenS = ago.Seconds()
		}
		if ago := m.Heard(r.Peer); !member.Self && r.State != consensus.Gone && ago > awayAfter+m.Beats.Slack(r.Peer) {
			member.State, member.SilentSince = api.MemberSilent, now.Add(-ago)
		}
		members = append(members, member)
	}
	return members
}

// stages returns the plan's placements with the times in their nodes' heartbeats.
func (m *Monitor) stages(state consensus.State) []api.StageStatus {
	var stages []api.StageStatus
	for r, pipe := range state.Plan.Replicas {
		for i, place := range pipe.Stages {
			s := api.StageStatus{
				Replica: plan.Replica(r), Stage: plan.Stage(i), Peer: place.Peer, Device: place.Device, Layers: place.Layers, Codec: place.Codec,
			}
			b, _ := m.Beats.Last(place.Peer)
			for _, t := range b.Stages {
				gone := state.Substitute.Carrier(place.Peer) != place.Peer
				if b.Generation == state.Plan.Generation && t.Replica == s.Replica && t.Stage == s.Stage && !gone {
					s.ForwardMS, s.BackwardMS = milliseconds(t.ForwardNanos), milliseconds(t.BackwardNanos)
					s.WaitMS, s.UpdateMS = milliseconds(t.WaitNanos), milliseconds(t.UpdateNanos)
					s.FellBack, s.RelError = t.FellBack, t.RelError
				}
			}
			stages = append(stages, s)
		}
	}
	return stages
}

func milliseconds(nanos int64) float64 { return float64(nanos) / 1e6 }

// fillPlan adds what the run is and how its plan goes.
func (m *Monitor) fillPlan(s *api.Status, state consensus.State) {
	if state.Run == nil {
		return
	}
	s.About = about(*state.Run)
	v, err := m.planView(state)
	if err != nil {
		m.Log.Debug("no view of the plan", "cause", err)
		return
	}
	s.About.Schedule, s.About.Course = v.plan.Schedule, v.plan.ScheduleChoice().Short()
	s.About.PredictedMS = milliseconds(int64(v.line.Makespan))
	s.About.StepMS = milliseconds(v.seen.StepNanos)
	s.Seats, s.Links = v.seats, slices.Clone(v.links)
	for i := range s.Links {
		m.tellTransport(&s.Links[i], state.Plan.Generation)
	}
}

// tellTransport adds over what the messages of a link go, as its sender tells, and why. Where the receiver chose the
// transport, it alone knows the reason, and tells it of its own messages.
func (m *Monitor) tellTransport(l *api.LinkStatus, g plan.Generation) {
	told := toldOf(m.Beats, l.From, l.To, g)
	if told.Transport == "" {
		return
	}
	l.Transport, l.Reason = told.Transport, told.Reason
	if back := toldOf(m.Beats, l.To, l.From, g); back.Transport == l.Transport && strings.HasSuffix(back.Reason, l.Reason) {
		l.Reason = back.Reason // all that the sender knows, and more
	}
}

// toldOf returns what a member's newest heartbeat tells of its messages to another one.
func toldOf(beats *gossip.Tracker, from, to plan.PeerID, g plan.Generation) gossip.LinkRate {
	b, _ := beats.Last(from)
	if i := slices.IndexFunc(b.Links, func(l gossip.LinkRate) bool { return l.Peer == to }); i >= 0 && b.Generation == g {
		return b.Links[i]
	}
	return gossip.LinkRate{}
}

func about(run plan.RunSpec) *api.About {
	m := run.Model.Resolved()
	family := "GPT-2 style"
	if m.Positions == model.RoPE {
		family = "Llama style"
	}
	if m.LoRA.Rank > 0 {
		family += ", adapters alone are trained"
	}
	return &api.About{
		Parameters: m.Params(), Family: family, Layers: m.Layers(), Channels: m.Channels, Context: m.Context, Vocab: m.Vocab,
		Micros: run.Train.Micros, TokensPerStep: tokensPerStep(run),
	}
}

// away reports whether a member has been silent for so long that what it said last of work under way says nothing of now.
func away(beats *gossip.Tracker, peer plan.PeerID, now time.Time) bool {
	ago, heard := beats.Ago(peer, now)
	return heard && ago > awayAfter+beats.Slack(peer)
}

// whole returns the view of now. The caller holds no lock.
func (m *Monitor) whole(state consensus.State, now time.Time) wholeView {
	v := wholeView{State: state, Self: m.Self, Copies: map[plan.PeerID]plan.WholeCopy{}, Ages: map[plan.Step]time.Duration{}}
	for _, r := range state.Members {
		c := m.Beats.Whole(r.Peer)
		if away(m.Beats, r.Peer, now) {
			c.Next = 0 // nothing is on its way there
		}
		v.Copies[r.Peer] = c
	}
	for _, c := range consensus.Checkpoints(state) {
		if at := c.Time(); !at.IsZero() {
			v.Ages[c.Step] = max(0, now.Sub(at)) // the leader's clock may be ahead
		}
	}
	return v
}
