// Package weights is where a model's weights come from and where they go: a folder in Hugging
// Face's layout, the chunks of a run's checkpoint, a folder that `pnode import` made.
//
// # Nouns
//
//   - Model: weights at rest, read a layer at a time, with what turns the model's tokens into
//     text and the files that belong to it.
//   - Words: a model's tokenizer, with the tokens that begin and end a text.
//   - Shelf: the stores of the nodes of one run on this machine. Each node of a pipeline has
//     its own layers and its neighbours' copies: only together they have all.
//
// # What holds
//
// Parameters are float32 in memory and in chunks, which holds F16 and BF16 exactly: a model
// that is imported, trained for no step and exported has the same bytes in its tensors. A
// value that is no finite number is refused by the name of its tensor, since training would
// spread it. Every chunk is checked against its hash when it is read.
//
// A model of a run with adapters is its base with the adapters worked in, and so is a model
// with the adapters of a folder in PEFT's layout; Apart keeps them apart from the weights.
//
// The node calls it to found a run from given weights, the commands to generate, score,
// import and export. It runs no model: that is package infer.
package weights
