// Package leader carries out the duties of the member that the consensus has elected.
//
// # Nouns
//
//   - Leader: every node has one; it acts while its node is elected. Twice a second it looks at
//     the members' heartbeats and the replicated state, decides, and proposes at most one thing.
//   - term: what a leader remembers from its election on, in parts. Each part follows one thing and says at a look what it
//     sees of it.
//   - moment: what all parts see at one look. view: what the parts say, plain values, the input of decide.
//   - verdict: what comes of it. rule: one case of decide.
//
// # Parts of a term
//
//   - sightings: since when this node has heard nothing of each member, so that it blames nobody for
//     what it missed itself. They are older than a term.
//   - speeds: how long devices compute against what their profiles say. Every node follows that, so they are older than a term, too.
//   - lines: which lines are slower than the profiles say, see package slowlines. Who may lead follows that whoever leads, too.
//   - attempts: how many plans came to nothing since the newest checkpoint.
//   - pauseWatch: how long the plan has been paused.
//   - betterWatch: whether another plan, or with scheduleWatch another schedule, is worth a change that can wait; and what would help.
//   - court: who is at fault, by the rules of package blame; deafWatch finds members that live and do not begin with a plan.
//   - salvageWatch: what the members have left of a broken generation.
//   - roundWatch: how the round of replicas with local steps goes, by package grace.
//   - nextPlan: the plan of the next generation, searched for on a goroutine of its own; ahead: the same before anybody is lost.
//   - growth: has the log say what steps show of the speeds that members claim. Plans count on that, see planner/claims.
//
// A search may take seconds and never delays the next look: the dead are marked gone meanwhile.
// Its result counts only for the state that it was made for.
//
// # The order of rules
//
// decide asks them one after the other; the first that applies has the last word. The list in decide.go says why each stands
// where it does.
//
//  1. rounds: replicas with local steps wait for one that is late or lost, also where the run ends
//  2. over: the run is stopping or finished, and nobody came back to it; before it stops, its newest step is saved from memory
//  3. parted: a link is dead whose ends live; one of the two is left out
//  4. salvage: members that live have newer steps in memory than the checkpoint
//  5. dead: a process has ended, or is silent for longer than it ever is; a substitute goes on in its place, if there is one
//  6. doubtful: a member of a plan that goes on is silent, and its host may yet say that its process has ended
//  7. stopped: the run is stopping, though a member came back to it
//  8. fault: a generation was given up for somebody's fault
//  9. jump: the loss jumped
//  10. restarts: a process is started again and again
//  11. disputed: replicas with local steps contradict each other
//  12. first: there is no plan
//  13. deserted: no member is active
//  14. ruled: a ruling ends the generation
//  15. salvaging: a salvage is being saved, or members have yet to say what they have
//  16. starting: the whole run is started again, and members of the plan, or holders of the checkpoint, are not all back
//  17. met: replicas with local steps make an outer step without who is lost, or their plan has ended with one
//  18. unheld: who alone held a layer of the newest checkpoint is gone
//  19. missed: members of a broken plan are silent, and may be back
//  20. absent: members of the plan are gone, or were started again
//  21. rolled back: the plan began with a checkpoint that was given up
//  22. orphaned: who had the checkpoint left before others had it
//  23. given up: members gave the generation up, nobody is known to be at fault
//  24. change: a member leaves, a substitute computes twice, another plan is better, or the plan is paused
//  25. suspected: a member is silent for longer than it ever is
//
// # Goroutines
//
// Run is one goroutine of the node. It starts at most maxSearches searches and waits for them.
//
// Package node calls it. It never imports node, its other rooms but node/gossip and those below, or anything of
// pipeline that runs.
package leader
