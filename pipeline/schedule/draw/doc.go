// Package draw makes an SVG picture of timelines: one row for each worker, a bar for each
// action with its micro-batch, arrows for messages, and shade where a worker computed
// nothing, hatched where a message was under way to it. It looks the same for a simulated
// timeline and for a measured one; panels in one picture share their scale, so that both
// can be compared.
//
// Nouns:
//
//   - Panel: one timeline with a title.
//
// The picture needs no script and no font of its own, follows the reader's light or dark
// scheme, and says in a tip what each bar and arrow is. The same timelines give the same
// bytes. The package decides nothing about schedules and reads no clock.
package draw
