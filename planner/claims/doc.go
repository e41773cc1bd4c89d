// Package claims decides how much of what members claim of their speed plans count on, and what steps showed of it.
//
// An owner of the run is believed. Every other member gets work by what it has shown: plans count on it with no more
// than the fastest speed that is proven in the run, then, when steps took the time that was predicted, with 8 times
// what it has shown, up to its claim. Where steps show less, plans count on that, and growth is slower from then on.
//
// # Nouns
//
//   - Claim: the profile of a member, whether it is an owner's, and what was shown of it before.
//   - Counted: what plans count on of a claim. [Count] makes it of all claims of a run.
//   - Window: the times of some steps of one plan. [Rule] makes verdicts of it and of what was counted on.
//
// # What a time proves
//
// A member's own times prove nothing: it says what it likes. That a step ended in a time proves that all work of
// that step was done in it, the member's too. So a member grows by the steps that others report, and by its own
// times it can only lose.
//
// The package is pure: integers alone, no clock. It never makes a plan; package node/leader calls it before and
// after package planner does. It imports planner/plan and pipeline/model for the nouns.
package claims
