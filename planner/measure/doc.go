// Package measure holds what was measured of a run, and what it says of links between peers.
//
//   - Steps: what steps of a plan showed: their time, and the times of their stages and links. [Median] makes one of several.
//   - Links: what is known of the links between all peers, by the probes in their profiles and by steps. A link that nobody
//     measured is no better than others of its ends usually are.
//   - Ratios: how long devices compute against what their profiles say, by steps.
//
// The package is pure. Package planner speaks for it: the rest of the program calls these nouns planner.Measured,
// planner.MeasuredStage and planner.MeasuredLink.
package measure
