// Package generate continues token sequences with a whole model on one device: a prompt
// is fed once, then each token costs a forward pass over one row (key-value cache), of several
// sequences together.
//
// Nouns:
//
//   - Generator: a loaded model; continues one sequence, or several at a time.
//   - Sampling: how a token is drawn from logits: temperature, top-k, top-p, seed.
//   - Sampler: a Sampling with its stream of random numbers; pure.
//
// The node calls it for the text at the end of a run. It knows tokens only: text is the
// tokenizer's business. It imports pipeline/model and kernels, and starts no goroutine.
package generate
