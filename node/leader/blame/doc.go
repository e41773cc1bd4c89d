// Package blame rules on whose fault it is that a generation ended, that the loss jumped, or that all is planned anew again and
// again. It proves nothing: any word of a member may be a lie, and each lie costs its author more than it costs others.
//
// # Nouns
//
//   - Trial and Ruling: plain values into and out of Judge, the pure rule.
//   - Endings: how the generations of before ended, where nobody was at fault.
//   - Losses: the newest losses of the run, and the jumps in them, for which the run goes back.
//   - Restarts: when members' processes were started again.
//
// Package leader calls it, has the log write the rulings down, and makes plans without whoever is left out. It never proposes
// anything, and asks nobody.
package blame
