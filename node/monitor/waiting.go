package monitor

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/node/plain"
	"pnode/planner/plan"
	"pnode/swarm/clock"
	"pnode/swarm/consensus"
)

const (
	// electionTime is how long there may be no leader before people are told.
	electionTime = 6 * time.Second
	// votesMovedTime is how long there may be none, with enough voters there, before others are named that may vote now.
	votesMovedTime = 15 * time.Second
	// awayAfter is how long a voter may be silent before it is named as away.
	awayAfter = 3 * time.Second
	// showAfter is how long nothing must move for one reason before people are told, showAgain how long until they are told how far that has
	// come.
	showAfter = 2 * time.Second
	showAgain = 10 * time.Second
	// roundPatience is how long replicas here with local steps may stand still until people are told for whom. What their newest outer step took,
	// and half of that, is usual.
	roundPatience = 10 * time.Second
	// mostTried are how many of the members that are tried are named.
	mostTried = 3
)

// Phases of a node that change why it waits, in the words of api.Status.
const (
	phaseJoining   = "joining"
	phaseProfiling = "profiling"
	phaseTraining  = "training"
)

// Deadline is when a node that comes back stops looking for the others.
type Deadline struct {
	At time.Time
	// Deserted is set while the others' machines say that no node runs there, which makes it sooner.
	Deserted bool
}

// waitView holds what a node knows when nothing moves.
type waitView struct {
	Now      time.Time
	Finished bool   // the run is
	Serving  string // why this node of a finished run stays
	Quorum   consensus.Quorum
	// Leaderless is how long no leader has been known; Away are the voters that were not heard
	// for awayAfter.
	Leaderless time.Duration
	Away       []awayVoter
	// RecoverAfter is how long no leader may be known until this node recovers the run by itself; 0 is never. Dir is its
	// folder.
	RecoverAfter time.Duration
	Dir          string
	Apart        string // the member that goes on with the run without this node
	Checkpoint   plan.Step
	Reached      plan.Step // the newest step that this node knows of
	Blocked      string    // why the leader has no plan, as far as this node has heard
	Training     bool      // this node carries one out
	Stalled      plan.Generation
	StallWhy     error
	Replay       string // who computes steps again for members that are gone
	NotUsed      string // why plans do without this node
	Diverged     string // why the run has stopped
	Stopped      string // whom a stopped run waits for
	Round        string // whom replicas with local steps here wait for
	Ends         string // what is done once all steps are made
	// Trying names whom a node that comes back looks for, until Deadline.
	Trying   string
	Deadline Deadline
}

// awayVoter is a voter that is not heard of.
type awayVoter struct {
	Name  string
	Since time.Time
	// Never is set where it was not heard of since this node was started, at Since.
	Never bool
	// Counts is when the silence began that a recovery counts: earlier starts listened, too.
	Counts time.Time
}

const timeOfDay = "15:04"

// text says since when it is away; near is a time that needs no date.
func (a awayVoter) text(near time.Time) string {
	since := plain.Moment(a.Since, near, timeOfDay)
	if a.Never {
		return fmt.Sprintf("%s (not heard since this node was started at %s)", a.Name, since)
	}
	return fmt.Sprintf("%s (since %s)", a.Name, since)
}

// why returns the reason why nothing moves, in one sentence for people, and its kind. Both are empty when things
// move, or will in a moment.
func (v waitView) why() (kind api.WaitKind, why string) {
	kind, why = v.cause()
	if why == "" {
		return "", ""
	}
	if v.Trying == "" {
		return kind, why
	}
	until := ""
	if !v.Deadline.At.IsZero() {
		until = " until " + plain.Moment(v.Deadline.At, v.Now, time.TimeOnly)
	}
	if v.Deadline.Deserted {
		until += ", as their machines say that no node runs there"
	}
	return kind, fmt.Sprintf("%s. Trying %s%s; Ctrl-C ends that and loses nothing", why, v.Trying, until)
}

// Tried names the members at addresses, or the addresses of members without a name, with the ends of their peer IDs.
func Tried(state consensus.State, addrs []string) string {
	var all []string
	for _, addr := range addrs {
		way, id, _ := strings.Cut(addr, "/p2p/")
		id = id[strings.LastIndex(id, "/")+1:] // behind a relay, the last one
		name := state.NameOf(plan.PeerID(id))
		if parts := strings.Split(way, "/"); name == plan.PeerID(id).Short() && len(parts) > 4 {
			name += " at " + net.JoinHostPort(parts[2], parts[4])
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if more := len(all) - mostTried; more > 0 {
		all = append(all[:mostTried], fmt.Sprintf("%d more", more))
	}
	if last := len(all) - 1; last > 0 {
		return strings.Join(all[:last], ", ") + " and " + all[last]
	}
	return strings.Join(all, "")
}

// cause returns why nothing moves, without what a node that comes back tries meanwhile, and what kind of wait that is.
func (v waitView) cause() (kind api.WaitKind, why string) {
	voters := len(v.Quorum.Voters)
	switch {
	case v.Finished && (v.Trying == "" || v.Leaderless <= electionTime): // else it comes back, as to move the end of the run
		return api.WaitOthers, v.Serving
	case v.Leaderless > electionTime && voters == 0:
		return api.WaitLeader, "no leader of the run answers yet"
	case v.Leaderless > electionTime && v.Apart != "":
		return api.WaitLeader, fmt.Sprintf("%s was recovered without this node and goes on with the run. `pnode recover --dir %s` has this node follow it; what it has done since then does not count any more", v.Apart, plain.Quote(v.Dir))
	case v.Leaderless > votesMovedTime && voters-len(v.Away) >= voters/2+1 && len(v.Away) > 0:
		var away []string
		for _, a := range v.Away {
			away = append(away, a.Name)
		}
		return api.WaitLeader, fmt.Sprintf("the run has no leader, though %d of the %d voters that this node knows are up: they elect one, this node is cut off from them, or votes have moved since its log ended. Start %s, too",
			voters-len(v.Away), voters, names(away))
	case v.Leaderless > electionTime && voters-len(v.Away) >= voters/2+1:
		return api.WaitLeader, "the run has no leader: its voters are electing one, or this node is cut off from them"
	case v.Leaderless > electionTime:
		if v.Stopped != "" {
			return api.WaitLeader, fmt.Sprintf("%s. Now %s. %s. %s", v.Stopped, v.offline(), v.kept(), v.wayOut())
		}
		return api.WaitLeader, fmt.Sprintf("%s. Start %s again in its folder (`pnode train --resume` or `pnode join`). %s. %s", v.offline(), v.oneOfThem(), v.kept(), v.wayOut())
	case v.Diverged != "":
		return api.WaitDiverged, v.Diverged
	case v.Blocked != "" && !v.Training:
		return api.WaitPlan, v.Blocked
	case v.NotUsed != "" && !v.Training:
		return api.WaitUnused, "this node is in the run, but not used " + v.NotUsed
	case v.Stalled != 0 && v.Replay != "":
		return api.WaitReplay, v.Replay
	case v.Stalled != 0:
		return api.WaitPlan, fmt.Sprintf("generation %d was given up, a new plan will follow: %s", v.Stalled, plain.Text(v.StallWhy))
	case v.Ends != "":
		return api.WaitClosing, v.Ends
	case v.Training:
		return api.WaitReplicas, v.Round
	}
	return "", ""
}

// offline says who is away, and how many of those that vote on the run's log must be up.
func (v waitView) offline() string {
	var silent []string
	for _, a := range v.Away {
		silent = append(silent, a.text(v.Now))
	}
	voters := len(v.Quorum.Voters)
	if voters == 1 {
		return "offline: " + strings.Join(silent, "") + ", the run's only voting machine"
	}
	return fmt.Sprintf("offline: %s; %d of the run's %d voting machines must be up, %d now",
		strings.Join(silent, ", "), voters/2+1, voters, voters-len(v.Away))
}

// oneOfThem says how many of those that are away have to come back.
func (v waitView) oneOfThem() string {
	voters := len(v.Quorum.Voters)
	need := voters/2 + 1 - (voters - len(v.Away))
	switch {
	case len(v.Away) == 1:
		return "it"
	case need == 1:
		return "one of them"
	}
	return fmt.Sprintf("%d of them, each", need)
}

// kept says from where the run goes on. Steps after the checkpoint need not be done again where nodes that live have the messages of them.
func (v waitView) kept() string {
	switch first := v.Checkpoint + 1; {
	case v.Reached < first:
		return fmt.Sprintf("Nothing is lost: the checkpoint of step %d is kept", v.Checkpoint)
	case v.Reached == first:
		return fmt.Sprintf("The checkpoint of step %d is kept; step %d may be done again", v.Checkpoint, first)
	default:
		return fmt.Sprintf("The checkpoint of step %d is kept; steps %d to %d may be done again", v.Checkpoint, first, v.Reached)
	}
}

// replayText says who computes again what members that are gone had done, and for which steps, and how many of them are done; empty while
// nobody does.
func replayText(state consensus.State, beats *gossip.Tracker) (text, done string) {
	s := state.Salvage
	if s == nil || s.Step <= state.Checkpoint.Step {
		return "", ""
	}
	var lost, by []string
	from, reached := s.Step, plan.Step(0)
	for _, part := range s.Parts {
		place, ok := state.Plan.Find(plan.StageID{Replica: part.Replica, Stage: part.Stage})
		if !ok || place.Peer == part.By {
			continue
		}
		lost, by, from = append(lost, state.NameOf(place.Peer)), append(by, state.NameOf(part.By)), min(from, part.From)
		b, _ := beats.Last(part.By)
		reached = max(reached, b.Replayed)
	}
	if len(lost) == 0 {
		return "", ""
	}
	if reached > from && reached <= s.Step {
		done = fmt.Sprintf(" (%d of %s so far)", reached-from, plan.Count(int(s.Step-from), "step"))
	}
	then := "a new plan goes on from there"
	if state.StopWanted {
		then = "the run stops once that is saved"
	}
	return fmt.Sprintf("%s computes steps %d to %d of %s again, from the messages of the others; %s",
		names(by), from+1, s.Step, names(lost), then), done
}

// names joins names, each once.
func names(all []string) string {
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " and ")
}

// wayOut says what to do where the voters that are away are gone for good.
func (v waitView) wayOut() string {
	var last time.Time // when one of them was heard
	for _, a := range v.Away {
		if a.Counts.After(last) {
			last = a.Counts
		}
	}
	switch {
	case v.RecoverAfter > 0:
		return fmt.Sprintf("This node recovers the run without them after %s (--on-lost-majority)", plan.Duration(v.RecoverAfter))
	case v.Trying != "":
		return fmt.Sprintf("Gone for good: start this node with `pnode train --resume --on-lost-majority recover-after=10m --dir %s`", plain.Quote(v.Dir))
	}
	return fmt.Sprintf("Gone for good: `pnode recover --dir %s`, from %s on", plain.Quote(v.Dir), plain.Moment(last.Add(consensus.RecoverAfter).Add(time.Minute), v.Now, timeOfDay))
}

// waiting returns why nothing moves as far as this node knows, of what kind that is, and what is done of the work that is waited for, where that is known; state is
// what Known returns.
func (m *Monitor) waiting(state consensus.State, now time.Time) (why, done string, kind api.WaitKind) {
	newest := m.steps.current()
	v := waitView{Now: now, Finished: state.Finished, Quorum: m.Consensus.Quorum(), Checkpoint: state.Checkpoint.Step, Reached: reached(state, position{newest.Generation, newest.Step}, m.Recorded()), RecoverAfter: m.RecoverAfter, Dir: m.Dir}
	if me, ok := state.Member(m.Self); ok {
		v.NotUsed = notUsed(state, me, now)
	}
	v.Diverged = DivergenceText(state)
	if still, view := m.steps.still(now), (roundView{state, m.Beats, now}); still > roundPatience {
		v.Ends, v.Round = view.ends(max(v.Reached, m.Beats.Newest(state.Plan, now))), view.standsStill(m.Self, still)
	}
	v.Replay, done = replayText(state, m.Beats)
	if !v.Quorum.LostSince.IsZero() {
		v.Leaderless = now.Sub(v.Quorum.LostSince)
	}
	if v.Leaderless > electionTime { // the log may not be here up to its end
		v.Stopped = StoppedText(state, m.Self)
		if kept, err := m.Stored(); err == nil {
			v.Checkpoint = max(v.Checkpoint, kept.Step)
		}
	}
	if p := v.Quorum.Apart; p != "" {
		v.Apart = state.NameOf(p)
	}
	for _, p := range v.Quorum.Voters {
		if ago, heard := m.Beats.Ago(p, now); p != m.Self && (!heard || ago > awayAfter+m.Beats.Slack(p)) {
			v.Away = append(v.Away, awayVoter{state.NameOf(p), now.Add(-m.Heard(p)), !heard, now.Add(-m.Unheard(p))})
		}
	}
	b, _ := m.Beats.Last(v.Quorum.Leader)
	v.Blocked = b.Blocked
	m.mu.Lock()
	defer m.mu.Unlock()
	v.Serving, v.Stalled, v.StallWhy, v.Training = m.serving, m.stalled, named(m.stallWhy, state.NameOf), m.phase == phaseTraining
	if m.phase == phaseJoining || m.phase == phaseProfiling {
		v.Trying = Tried(state, m.Trying)
		if me, _ := state.Member(m.Self); me.ProcessEpoch != m.Epoch { // once in the roster that time counts no more
			v.Deadline = m.deadline
		}
	}
	if kind, why = v.why(); why != v.Replay {
		done = ""
	}
	if why != "" && m.SlowDisk != nil {
		done += slowDiskText(m.Dir, m.SlowDisk())
	}
	return why, done, kind
}

// slowDiskText says what a slow disk holds up, to whole seconds: it is no news each time.
func slowDiskText(dir string, takes time.Duration) string {
	if takes == 0 {
		return ""
	}
	return fmt.Sprintf("; the disk of %s is slow, a write takes %s: each change waits for it", dir, plan.Duration(max(time.Second, takes.Round(time.Second))))
}

// StoppedText says whom a node waits for in a run that was stopped; empty where it need not wait for anybody to resume the run.
func StoppedText(state consensus.State, self plan.PeerID) string {
	if !state.StopWanted || len(state.ActiveOwners()) == 0 || state.Owner(self) {
		return ""
	}
	var owners []string
	for _, p := range state.ActiveOwners() {
		owners = append(owners, state.NameOf(p))
	}
	return fmt.Sprintf("the run was stopped: it goes on when its owner, %s, resumes it (`pnode train --resume` there)", strings.Join(owners, " or "))
}

// ShowWaiting publishes why nothing moves, after that has been so for showAfter, and then how far it has come, where that is told, what each member would add that waits without a
// stage, and the newest outer step. It measures this process's memory, which is too slow to do in each step. Only one goroutine calls it.
func (m *Monitor) ShowWaiting(now time.Time) {
	if m.Memory != nil {
		m.memory.Store(m.Memory())
	}
	state, _ := m.Known()
	if why, done, _ := m.waiting(state, now); m.shown.due(why, done, now) {
		m.Publish(api.Event{Kind: api.KindWaiting, Generation: state.Plan.Generation, Message: why + done})
	}
	// The run loop may be busy with the end of a plan, and its next state be of another one.
	for _, o := range []*api.OuterStep{m.outer.follow(m.Consensus.State(), m.Beats, m.Self, now), m.outer.show(m.Beats, m.Self, now, false)} {
		if o != nil {
			m.Publish(outerEvent(*o))
		}
	}
	leader, _, _ := m.Consensus.Leader()
	for _, text := range m.spares.news(state, m.Beats.Spares(leader, state.Plan.Generation), m.Self) {
		m.Publish(api.Event{Kind: api.KindSpare, Generation: state.Plan.Generation, Message: text})
	}
}

// ShowClocks publishes once of each clock that it is off. Only one goroutine calls it.
func (m *Monitor) ShowClocks(off []clock.Astray) {
	state := m.Consensus.State()
	for _, a := range m.clocks.news(off, time.Now()) {
		m.Publish(api.Event{Kind: api.KindError, Generation: state.Plan.Generation, Message: clockText(a, state.NameOf(a.Member))})
	}
}

// shownWait knows what was shown of why nothing moves. It belongs to whoever calls ShowWaiting.
type shownWait struct {
	why   string    // nothing moves; empty while things do
	since time.Time // of why
	shown time.Time // when it was shown last, zero before
	done  string    // as it was shown
}

// due takes in why nothing moves, and what of it is done, and reports whether it is time to show that.
func (w *shownWait) due(why, done string, now time.Time) bool {
	if w.why != why {
		*w = shownWait{why: why, since: now}
	}
	switch {
	case why == "" || now.Sub(w.since) < showAfter:
		return false
	case !w.shown.IsZero() && (done == w.done || now.Sub(w.shown) < showAgain):
		return false
	}
	w.shown, w.done = now, done
	return true
}
