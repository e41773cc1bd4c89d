// Package infer runs a model that lies still: it continues text and scores text.
//
// # Nouns
//
//   - Prompt: what to continue, how far and how tokens are drawn; Generate streams the text.
//   - Scorer: computes how well a model predicts texts; Score is the result for one of them.
//
// A score comes from the same passes as a run's held-out loss. A text is cut into windows of
// the model's context that do not overlap; each token is predicted once, from those before it
// in its window, and in its document where the model was trained with attention that stays
// within documents.
//
// Both compute on one device, which holds all of the model. The commands call it with a
// weights.Model.
package infer
