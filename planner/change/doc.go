// Package change says whether another plan is worth the time for which a change to it stops the steps.
//
// Four nouns:
//
//   - Change: the plan that runs beside another one: their steps, and the state that would move.
//   - Outlook: for how long the other plan will be of use, and how long earlier changes took.
//   - Stop: an earlier change: how long it took until there was a plan, and from then to the first step.
//   - Decision: whether to change, with the reason for people.
//
// The package is pure, and imports planner/plan and pipeline/schedule. Package planner compares plans and speaks for it: the rest of
// the program calls these nouns planner.Change, planner.Outlook and planner.Decision.
package change
