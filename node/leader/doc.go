// Package leader carries out the duties of the member that the consensus has elected.
//
// # Nouns
//
//   - Leader: every node has one; it acts while its node is elected. Twice a second it looks at
//     the members' heartbeats and the replicated state, decides, and proposes at most one thing.
//   - view and verdict: plain values into and out of decide, the pure rule.
//   - trial and ruling: the same for judge, the rule of whose fault it was that a generation ended.
//   - lossWatch: finds jumps of the loss, for which the run goes back.
//   - sightings: since when this node has heard nothing of each member, so that it blames nobody for
//     what it missed itself.
//   - departures: when members left or were lost, which says how long plans last.
//   - scheduleWatch: compares the schedule that runs with the best one for measured times.
//   - growth: has the log say what steps show of the speeds that members claim. Plans count on that, see planner/claims.
//   - future: the result of a search for plans, which runs on a goroutine of its own.
//
// A search may take seconds and never delays the next look: the dead are marked gone meanwhile.
// Its result counts only for the state that it was made for.
//
// # Goroutines
//
// Run is one goroutine of the node. It starts at most maxSearches searches and waits for them.
//
// Package node calls it. It never imports node, its other rooms but node/gossip, or anything of
// pipeline that runs.
package leader
