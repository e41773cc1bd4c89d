// Package synthetic writes text to train on where a machine has none: sums, products and sentences of a small
// grammar, a line each.
//
//	407 + 88 = 495
//	7 * 63 = 441
//	two small dogs see this red house.
//
// # Nouns
//
//   - line: drawn independently of all others, first its kind, then each of its choices with equal chances.
//     A text is as many lines as fit. The same size gives the same bytes on every machine.
//   - choices: whatever a reader of the line could not have known: operands, words. A result follows from its
//     operands, the forms of noun and verb follow from the number, so these can be learned.
//   - floor: the least loss, in nats a byte, that any model can have in the long run (Shannon 1948, theorem 3).
//     Two lines that differ in a choice differ as text, so a line's entropy is that of its choices; over
//     the mean length of a line it is the entropy of a byte, which no cross-entropy is below.
//
// A held-out loss near the floor means that the model computes and has the grammar. It knows less at the begin of a
// window, where it does not see the line's begin: it stays some hundredths above.
//
// Package ingest writes it into chunks when a run names no text. The package reads no clock, no file and no
// random numbers but its own, and imports nothing of the project.
package synthetic
