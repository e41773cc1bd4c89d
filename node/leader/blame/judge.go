package blame

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	sameStep = consensus.SameStep
	// lostLinks counts the generations in a row that end for want of a link before somebody is left out for it: a
	// network that fails for a moment is nobody's fault.
	lostLinks = 3
)

type accusation = gossip.Accusation

// Trial holds what Judge looks at, all of it plain values.
type Trial struct {
	Accusations []gossip.Accusation // of one generation
	// Links are the accusations of each generation since the newest checkpoint that ended for lost links alone.
	Links [][]gossip.Accusation
	// Quitter is the only member that gave this generation up, Quits how many it alone gave up right before it.
	Quitter plan.PeerID
	Quits   int
	Past    []consensus.Blame // rulings of before, oldest first
	Owners  []plan.PeerID
	Faults  map[plan.PeerID]int      // scores
	Name    func(plan.PeerID) string // of a member, for people
	// Start is the step of the checkpoint that the plan began with, Older that of the newest before it; 0 is none.
	Start, Older plan.Step
	// Alone: no other member could do the work.
	Alone bool
	// Computing are the owners that are active and have a part in the plan, Active counts all active members.
	Computing []plan.PeerID
	Active    int
	// Lively are the members that have given signs of life to others all the time.
	Lively map[plan.PeerID]bool
	// Absent are the members of the plan that have not begun with it, as they say themselves.
	Absent map[plan.PeerID]bool
}

// Ruling says whose fault it was that a generation ended. Out leaves the peer out of plans for a while. The
// generation and the time are the caller's.
type Ruling struct {
	consensus.Blame
	Out bool
	// Parted: both live, and no data comes through between them.
	Parted bool
}

// Judge is the rule of blame. It does not prove anything: every word in it may be a lie. It sees to it that a
// generation that failed is not tried again in the same way for ever, and that each lie costs its author more than
// it costs others.
//
//  1. Lost links count only where nothing else is said: whoever gives a generation up closes its links. After
//     lostLinks generations in a row the member that most could not reach is left out. Who alone gave all of them
//     up, and had no part in the others' losses, is left out itself, but no owner. Where both ends of a lost link have
//     lived all the time, it is dead, perhaps in one direction alone, and one of the two is left out at once.
//  2. Who is accused and accuses nobody is at fault. Where a waits for b and b waits for c, that is c: a worker
//     that waits says so, and one that is mute does not.
//  3. But an accuser who has named two members, neither of whom anybody else ever named, is left out instead: two
//     bad members and one witness are less likely than one liar. It takes a second lie, and acquits the first.
//  4. Owners are believed: their word alone does not come under 3, and nobody is believed against them. Such a
//     word is noted the first time; the second time its author is left out.
//  5. A worker whose own result is not finite is not to blame, but its work goes to another for a while, since its
//     device may be broken. The same step not finite again is divergence: the weights and the data do that, and the
//     run stops. That takes a second worker, or the only one again, and an owner's word among theirs; where no owner
//     computes, it takes three workers, or all where there are fewer. Until then each is left out like the first.
//     Where two find the checkpoint not finite, the run goes back to an older one.
//  6. Where everybody in question accuses another, the pair is noted and the same members try again. The second
//     time the member that is accused most is left out.
//
// It is not ok where nobody has anything to say that counts.
func Judge(t Trial) (r Ruling, ok bool) {
	words := slices.DeleteFunc(slices.Clone(t.Accusations), func(a accusation) bool { return a.Kind == plan.LostLink })
	if len(words) == 0 {
		return t.unreachable()
	}
	accuses, confesses := map[plan.PeerID]bool{}, map[plan.PeerID]bool{}
	for _, a := range words {
		if a.Own() {
			confesses[a.By] = true
		} else {
			accuses[a.By] = true
		}
	}
	slices.SortStableFunc(words, t.weigh)
	for _, a := range words {
		if !a.Own() && !accuses[a.Accused] && !confesses[a.Accused] {
			return t.culprit(a, words), true
		}
	}
	for _, a := range words {
		if a.Own() && !accuses[a.By] {
			return t.unfinished(a), true
		}
	}
	for _, a := range words {
		if !a.Own() && t.owns(a.By) && !t.owns(a.Accused) {
			return leaveOut(a), true
		}
	}
	return t.disputed(words), true
}

// owns reports whether a peer's word is an owner's, or the leader's own, which is nobody's here.
func (t Trial) owns(p plan.PeerID) bool { return p == "" || slices.Contains(t.Owners, p) }

// weigh orders accusations, the weightiest first: owners' words before others', what came before what did not
// come, the earlier step, and then any order that is the same on every node.
func (t Trial) weigh(a, b accusation) int {
	first := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	return cmp.Or(
		first(t.owns(a.By), t.owns(b.By)),
		first(a.Kind != plan.NoProgress, b.Kind != plan.NoProgress),
		cmp.Compare(a.Step, b.Step), strings.Compare(string(a.By), string(b.By)), strings.Compare(string(a.Accused), string(b.Accused)),
	)
}

// leaveOut believes an accusation.
func leaveOut(a accusation) Ruling { return Ruling{Blame: note(a).Blame, Out: true} }

// note writes an accusation down and blames nobody.
func note(a accusation) Ruling {
	return Ruling{Blame: consensus.Blame{Peer: a.Accused, Accuser: a.By, Kind: a.Kind, Step: a.Step, Detail: a.Detail}}
}

// culprit rules on a word against a member that says nothing: rules 2 to 4.
func (t Trial) culprit(a accusation, words []accusation) Ruling {
	witnesses := 0
	for _, w := range words {
		if w.Accused == a.Accused && !w.Own() {
			witnesses++
		}
	}
	switch {
	case t.owns(a.By):
		return leaveOut(a)
	case t.owns(a.Accused):
		return t.againstOwner(a)
	case witnesses == 1:
		if earlier, lies := t.lies(a); lies {
			return falseWord(a, fmt.Sprintf("accused %s and %s, whom nobody else accuses", t.Name(earlier), t.Name(a.Accused)))
		}
	}
	return leaveOut(a)
}

// falseWord leaves the accuser out.
func falseWord(a accusation, why string) Ruling {
	return Ruling{Blame: consensus.Blame{Peer: a.By, Kind: plan.FalseWord, Step: a.Step, Detail: why}, Out: true}
}

// lies reports whether the only accuser of a peer was the only one of another, since it was left out itself.
func (t Trial) lies(a accusation) (earlier plan.PeerID, lies bool) {
	only := map[plan.PeerID]bool{}
	for _, p := range t.Past {
		switch {
		case p.Peer == a.By && p.Until != 0:
			clear(only)
		case p.Accuser == a.By && p.Peer != a.By:
			only[p.Peer] = true
		}
	}
	for _, p := range t.Past {
		if p.Accuser != a.By && p.Accuser != "" {
			delete(only, p.Peer)
			if p.Peer == a.Accused {
				return "", false // others said so, too
			}
		}
	}
	delete(only, a.Accused)
	for peer := range only {
		if earlier == "" || peer < earlier {
			earlier = peer
		}
	}
	return earlier, earlier != ""
}

// againstOwner rules on a word against a node of an owner: rule 4.
func (t Trial) againstOwner(a accusation) Ruling {
	before := slices.ContainsFunc(t.Past, func(p consensus.Blame) bool {
		return p.Accuser == a.By && p.Until == 0 && t.owns(p.Peer)
	})
	if !before {
		return note(a)
	}
	return falseWord(a, fmt.Sprintf("accused %s, a node of the owner, twice", t.Name(a.Accused)))
}

// unfinished rules on a worker's own result that is not finite: rule 5.
func (t Trial) unfinished(a accusation) Ruling {
	near := func(p consensus.Blame) bool {
		return p.Peer != "" && p.Peer == p.Accuser && p.Step <= a.Step+sameStep && a.Step <= p.Step+sameStep
	}
	said, again := []plan.PeerID{a.By}, t.Alone && slices.ContainsFunc(t.Past, near)
	for _, p := range t.Past {
		if near(p) && !slices.Contains(said, p.Peer) {
			said, again = append(said, p.Peer), true
		}
	}
	r := note(a)
	switch {
	case again && a.Kind == plan.BadParameters && a.Step == t.Start && t.Older != 0:
		r.Back = t.Older
	case again && t.believed(said):
		r.Diverged = true
	default:
		r.Out = again || !t.Alone
	}
	return r
}

// believed reports whether the words of these members are enough to stop a run that diverges.
func (t Trial) believed(said []plan.PeerID) bool {
	if slices.ContainsFunc(said, func(p plan.PeerID) bool { return slices.Contains(t.Owners, p) }) {
		return true
	}
	return len(t.Computing) == 0 && len(said) >= min(3, t.Active)
}

// disputed rules where everybody in question accuses another: rule 6.
func (t Trial) disputed(words []accusation) Ruling {
	involved := func(p consensus.Blame) bool {
		return p.Until == 0 && p.Accuser != "" && p.Peer != p.Accuser && slices.ContainsFunc(words, func(a accusation) bool {
			return a.Accused == p.Peer || a.Accused == p.Accuser
		})
	}
	words = slices.DeleteFunc(words, accusation.Own)
	if !slices.ContainsFunc(t.Past, involved) {
		return note(words[0])
	}
	counted := words
	for _, p := range t.Past {
		if p.Until == 0 && p.Peer != p.Accuser {
			counted = append(counted, accusation{By: p.Accuser, Fault: plan.Fault{Accused: p.Peer}})
		}
	}
	return leaveOut(t.mostAccused(words, counted))
}

// mostAccused returns the word against the member that most of counted accuse; others than owners first, then the
// higher score, then any order that is the same on every node.
func (t Trial) mostAccused(words, counted []accusation) accusation {
	times := map[plan.PeerID]int{}
	for _, a := range counted {
		times[a.Accused]++
	}
	owner := func(p plan.PeerID) int {
		if t.owns(p) {
			return 1
		}
		return 0
	}
	return slices.MinFunc(words, func(a, b accusation) int {
		return cmp.Or(
			cmp.Compare(owner(a.Accused), owner(b.Accused)), cmp.Compare(times[b.Accused], times[a.Accused]),
			cmp.Compare(t.Faults[b.Accused], t.Faults[a.Accused]), strings.Compare(string(b.Accused), string(a.Accused)),
		)
	})
}

// unreachable rules on generations that ended for want of links alone: rule 1.
func (t Trial) unreachable() (Ruling, bool) {
	if t.Quitter != "" && t.Quits+1 >= lostLinks && !t.owns(t.Quitter) && !t.Alone {
		detail := fmt.Sprintf("it alone gave up %d generations in a row", t.Quits+1)
		return Ruling{Blame: consensus.Blame{Peer: t.Quitter, Kind: plan.LostLink, Step: t.Start, Detail: detail}, Out: true}, true
	}
	if len(t.Accusations) == 0 || len(t.Links)+1 < lostLinks {
		return Ruling{}, false
	}
	r := t.unreached(t.Accusations)
	r.Detail = fmt.Sprintf("no link to it in %d generations in a row", len(t.Links)+1)
	return leaveOut(r), true
}

// unreached returns the word against the member that most could not reach; an owner's node comes last, unless it has not begun.
func (t Trial) unreached(said []accusation) accusation {
	a := t.mostAccused(said, append(slices.Concat(t.Links...), t.Accusations...))
	if t.owns(a.Accused) && !t.owns(a.By) && !t.Absent[a.Accused] {
		a.Accused, a.By = a.By, a.Accused
	}
	return a
}
