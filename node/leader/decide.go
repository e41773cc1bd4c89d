package leader

import (
	"pnode/node/leader/blame"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// verdict says what the leader does next: at most one thing at a time. The zero verdict waits.
type verdict struct {
	Gone  plan.PeerID // mark this member gone
	Doubt bool        // but only if its host says that the process has ended
	Ended bool        // which it has said
	// By goes on in its place; empty: the generation ends.
	By plan.PeerID
	// Replays: it begins with the newest checkpoint, and not with state in its memory.
	Replays bool
	// Salvage has the state that the living have in memory saved; nil is no. Prepare has the next plan looked for
	// meanwhile, as it will be once Suspect is gone, if there is one.
	Salvage  *consensus.Salvage
	Prepare  bool
	Suspect  plan.PeerID
	Pause    bool            // have the newest step saved, a new plan follows it
	Rollback plan.Step       // give the newest checkpoint up for this one; 0 is no
	Rule     blame.Ruling    // write down whose fault it was; zero is no
	Propose  consensus.Entry // have the log take this; nil is nothing
	Plan     bool            // make a new plan now
	Again    bool            // the same as before
	Why      string
	// Blocked says why there is no plan and none can be made.
	Blocked string
}

// rule is one case of decide. It is asked only where no earlier rule applies, which it may count on.
type rule struct {
	name string
	// place says why the rule stands before those that follow.
	place string
	// verdict reports false where the rule does not apply. A zero verdict of a rule that applies has the later ones wait.
	verdict func(view) (verdict, bool)
}

// rules are the cases of decide in their order, cheapest loss first: when the running plan cannot go on, what the living have
// in memory is saved, the dead are marked, and a plan follows; otherwise the state is saved and a plan follows from there.
var rules = []rule{
	{"rounds", "who lives waits within an outer step until the log does without who is lost, also where the run ends", awaited},
	{"over", "a run that ends needs no other plan, whoever is dead: at most its newest step is saved", view.over},
	{"parted", "who is left out for a dead link can give others nothing: what is saved depends on it", view.parted},
	{"salvage", "the next death may take what the living have in memory, whoever is dead already", view.salvaged},
	{"dead", "all that follows counts on the members that the log has", view.dead},
	{"doubtful", "a silent member of a plan that goes on is the next one lost, if any: all else would be planned with it", view.doubtful},
	{"stopped", "a run that was stopped has the dead marked for who came back, and nothing more", view.stopped},
	{"fault", "whoever is at fault may restart or leave to be forgotten: nothing is planned before the log has its name", view.fault},
	{"jump", "a plan from weights that are no good would carry them on", view.jumped},
	{"restarts", "a plan with a member that is started again and again would not last", view.restarted},
	{"disputed", "a plan with whoever contradicts all others would end with its first round", disputed},
	{"first", "a run without a plan has none that could break or change", view.first},
	{"deserted", "without an active member nobody would carry a plan out: the checkpoint is the end of the run for now", view.deserted},
	{"ruled", "a ruling of the log ends the generation: nothing of it is waited for", view.ruled},
	{"salvaging", "a plan before the salvage is saved would start from an older step", view.salvaging},
	{"starting", "who is back first could plan alone, load in vain, or give up what those have who are started with it", starting},
	{"met", "what the living have learned since the newest checkpoint is lost unless their outer step is made and saved", met},
	{"unheld", "any plan from a checkpoint that nobody has would wait for it in vain", view.unheld},
	{"missed", "who is silent may be back at any time: a plan without it would cost its state, one with it would not get on", view.missed},
	{"absent", "without all of its members a plan gets nowhere, so it is not asked what else is wrong with it", view.missing},
	{"rolled back", "steps after a checkpoint that was given up do not count, whoever still computes them", view.rolledBack},
	{"orphaned", "a plan that waits for a checkpoint nobody has is not waited for until it is given up", view.orphaned},
	{"given up", "a generation that ended makes no steps that a change could wait for", view.givenUp},
	{"change", "a change that is wanted replaces any plan that is looked for ahead", view.change},
	{"suspected", "a plan that is looked for ahead changes nothing, so it comes last", view.suspected},
}

// decide is the leader's pure rule: the verdict of the first of the rules that applies.
func decide(v view) verdict {
	for _, r := range rules {
		if next, ok := r.verdict(v); ok {
			return next
		}
	}
	return verdict{}
}

// over rests once the run is stopping or finished. A stop has what the living have in memory saved before: it is lost with their processes.
func (v view) over() (verdict, bool) {
	if !v.Ending || v.Returning {
		return verdict{}, false
	}
	next, waits := v.salvage()
	if dead, ok := v.dead(); waits && ok && next.Salvage == nil {
		return dead, true
	}
	return verdict{Salvage: next.Salvage}, true
}

// stopped rests after the dead were marked for a member that came back to a stopped run.
func (v view) stopped() (verdict, bool) { return verdict{}, v.Ending }
