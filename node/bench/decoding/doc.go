// Package decoding is this program's side of measurements of generated text: a model that continues prompts of a fixed length, and
// the memory that a processor has to read for it.
//
// Nouns:
//
//   - Task: what is generated, and how.
//   - Precision: how its weights are stored.
//   - Decoder: a loaded model that does it.
//
// It starts no goroutine, and knows nothing of other programs. Package bench calls it.
package decoding
