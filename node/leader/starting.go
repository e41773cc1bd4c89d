package leader

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/node/plain"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// mostNamed bounds the holders that are named to people.
	mostNamed = 4
	// againFor bounds the wait of a run that begins again for the rest of its plan's members once two of them are back. A single one waits for unheardFor.
	againFor = 10 * time.Second
	// comeFor is how long members that are started with this node have to come before a way on without what they have is named to people, or
	// taken where a process that has ended had it in memory: it may have stored it, and not told the log.
	comeFor = 30 * time.Second
)

// absentHolders tells of layers of the newest checkpoint that no member has which is here, where the run as a whole is started again: all
// members that are here began after the plan. Zero where nothing is lacking.
type absentHolders struct {
	// Layers are lacking. Back is the newest older checkpoint whose layers are all here; 0 for none.
	Layers []consensus.LayerRef
	Back   plan.Step
	// Since is when this leader saw that first. It waits until Until, which Over says is past, or which no holder can make use of, since
	// those of a layer have left the run.
	Since, Until time.Time
	Over         bool
	// Coming: the holders may be started just now, and come.
	Coming bool
	// Self waits.
	Self plan.PeerID
}

// absent returns whose layers are waited for when the whole run is started again.
func (w *salvageWatch) absent(m moment, self plan.PeerID, patience time.Duration) (a absentHolders) {
	began := w.starting
	w.starting = time.Time{}
	here := func(p plan.PeerID) bool {
		member, ok := m.state.Member(p)
		return ok && (member.State == consensus.Active || member.State == consensus.Draining) && (p == self || !m.seen.unheard(member))
	}
	goesOn := func(member consensus.Member) bool { return here(member.Peer) && !m.state.Reborn(member) }
	if m.state.Plan.Generation == 0 || slices.ContainsFunc(m.state.Members, goesOn) {
		return a
	}
	lacking := func(l consensus.LayerRef) bool {
		return !slices.Contains(l.Kept(m.state), self) && !slices.ContainsFunc(l.Holding(m.state), here)
	}
	comes := func(p plan.PeerID) bool {
		member, ok := m.state.Member(p)
		return ok && (member.State != consensus.Gone || member.Reason != consensus.ReasonLeft)
	}
	for _, l := range m.state.Checkpoint.Layers {
		if lacking(l) {
			a.Layers = append(a.Layers, l)
		}
	}
	if len(a.Layers) == 0 {
		return a
	}
	if w.starting = began; began.IsZero() {
		w.starting = m.now
	}
	early := m.now.Before(w.starting.Add(comeFor))
	entering := func(p plan.PeerID) bool { return early && p != self && comes(p) && !here(p) }
	lost := slices.ContainsFunc(a.Layers, func(l consensus.LayerRef) bool {
		return !slices.ContainsFunc(l.Kept(m.state), comes) && !slices.ContainsFunc(l.Holders, entering)
	})
	for _, older := range m.state.Older {
		if a.Back == 0 && !slices.ContainsFunc(older.Layers, lacking) {
			a.Back = older.Step
		}
	}
	a.Self, a.Since, a.Until = self, w.starting, w.starting.Add(patience)
	a.Over, a.Coming = lost || !m.now.Before(a.Until), early && !lost
	return a
}

// starting waits where the whole run is started again, after all nodes crashed or were stopped: who is started again is started with the others.
// A plan before that would load in vain, or be replaced at once. A run whose plan is of this node alone waits for nobody.
func starting(v view) (verdict, bool) {
	if !v.broken() {
		return verdict{}, false
	}
	if next, waits := awaitHolders(v); waits {
		return next, true
	}
	return awaitMembers(v)
}

// awaitMembers waits for the members that the leader knows from the log alone, since it was started again itself, and for those of the plan that left the run
// together with it, or were about to when it was stopped.
func awaitMembers(v view) (verdict, bool) {
	here, unheard, entering, back := map[plan.PeerID]bool{}, []plan.PeerID(nil), false, 0
	stopped := slices.ContainsFunc(v.Members, func(m memberView) bool { return m.Leaving && m.Unheard && v.Plan.Places(m.Peer) })
	for _, m := range v.Members {
		here[m.Peer] = (m.Active || m.Leaving) && !(stopped && m.Unheard)
		if here[m.Peer] && m.Unheard && m.Silent <= m.suspicious() {
			unheard = append(unheard, m.Peer)
		}
		switch {
		case !v.Plan.Places(m.Peer):
		case here[m.Peer]:
			back++
		default:
			entering = entering || !m.Active && !m.Leaving && !m.Unheard
		}
	}
	if len(unheard) > 0 {
		return verdict{Blocked: fmt.Sprintf("nothing was heard yet of %s: waiting up to %s; the plan does without who is not heard of by then", v.names(unheard, "and"), plan.Duration(unheardFor))}, true
	}
	limit, absent := unheardFor, v.absent()
	switch {
	case entering: // it is measuring its lines
		limit = 2 * againFor
	case back > 1: // they are being started, one after another
		limit = againFor
	}
	carries := func(p plan.PeerID) bool { return here[p] && absent[p] == "" }
	left := slices.DeleteFunc(v.Plan.Peers(), func(p plan.PeerID) bool { return here[p] })
	if len(left) == 0 || slices.ContainsFunc(v.Plan.Peers(), carries) || v.BrokenFor > limit {
		return verdict{}, false
	}
	return verdict{Blocked: fmt.Sprintf("the run begins again: waiting up to %s for %s; the plan does without who is not back by then", plan.Duration(limit), v.names(left, "and"))}, true
}

// awaitHolders waits for the members that alone have layers of the newest checkpoint. Then it goes back to the newest checkpoint that is here.
func awaitHolders(v view) (verdict, bool) {
	a := v.Absent
	if len(a.Layers) == 0 {
		return verdict{}, false
	}
	lacks := a.text(v)
	waited := fmt.Sprintf("%s: waited for since %s", lacks, plain.Moment(a.Since, a.Until, time.TimeOnly))
	const start = "Start them in their folders (`pnode join --dir FOLDER`)"
	switch {
	case a.Over && a.Back != 0:
		return verdict{Rollback: a.Back, Why: lacks}, true
	case a.Coming:
		return verdict{Blocked: fmt.Sprintf("waiting since %s for members that are not back yet: %s of the checkpoint of step %d, and nobody here has. %s if they do not run",
			a.Since.Format(time.TimeOnly), a.whose(v), v.Checkpoint, start)}, true
	case a.Back == 0:
		return verdict{Blocked: fmt.Sprintf("%s, as no older checkpoint is whole here. %s to go on from it. %s", waited, start, anew)}, true
	}
	return verdict{Blocked: fmt.Sprintf("%s until %s. %s to go on from it; else the run goes back to step %d, at once where %s is started with `--await-holders 0s`",
		waited, plain.Moment(a.Until, a.Since, time.TimeOnly), start, a.Back, v.nameOf(a.Self))}, true
}

// text says which layers are lacking, and who has them.
func (a absentHolders) text(v view) string {
	return fmt.Sprintf("of the checkpoint of step %d nobody here has what %s", v.Checkpoint, a.whose(v))
}

// whose says who has which of the layers that are lacking: this node had those that were in the memory of its process before.
func (a absentHolders) whose(v view) string {
	var whose []string
	layers := map[string][]int{}
	for _, l := range a.Layers {
		others := slices.DeleteFunc(slices.Clone(l.Holders), func(p plan.PeerID) bool { return p == a.Self })
		who := v.names(others, "or") + " has"
		if len(others) == 0 {
			who = v.names(l.Holders, "or") + " had in memory"
		}
		if layers[who] == nil {
			whose = append(whose, who)
		}
		layers[who] = append(layers[who], l.Layer)
	}
	var has []string
	for i, who := range whose {
		if i == mostNamed {
			has = append(has, plan.Count(len(whose)-i, "other"))
			break
		}
		has = append(has, fmt.Sprintf("%s (%s)", who, layersText(layers[who])))
	}
	return strings.Join(has, " and ")
}

// layersText names ascending layers: "layers 2, 4-6".
func layersText(layers []int) string {
	var runs []string
	for i := 0; i < len(layers); {
		j := i
		for j+1 < len(layers) && layers[j+1] == layers[j]+1 {
			j++
		}
		run := fmt.Sprint(layers[i])
		if j > i {
			run += fmt.Sprintf("-%d", layers[j])
		}
		runs, i = append(runs, run), j+1
	}
	if len(layers) == 1 {
		return "layer " + runs[0]
	}
	return "layers " + strings.Join(runs, ", ")
}
