// Package study answers what a schedule would do: it makes one from numbers as a person
// writes them, times it, and reports the makespan, the bubble, what each worker keeps, and
// what bounds it.
//
// Nouns:
//
//   - Request: a kind, its options and the times of stages and links.
//   - Study: the answer, as text, as JSON and as a picture.
//
// It decides nothing: the planner chooses schedules. `pnode schedule` calls it.
package study
