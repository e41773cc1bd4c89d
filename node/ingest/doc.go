// Package ingest turns files into a run, and a run's chunks back into what training reads.
//
// # Nouns
//
//   - Source: the settings of a new run. Its Spec brings text and initial weights into chunks
//     and returns the run's specification.
//   - weights: the model that a run starts from, instead of a preset with random parameters.
//   - tokenizer: with given weights the text is cut into their tokens, or token shards must
//     have been made with the same tokenizer.
//   - Chunks: the run's chunks on this node. It opens the text, mirrors a large one while the
//     node trains, and has the finished model write a sample.
//
// Package node calls it when a run begins and when a node enters one; `pnode plan` asks it for
// the model. Chunks come from other nodes through the one function Chunks.Fetch: the package
// knows no swarm, no consensus and no plan, and starts no goroutine.
package ingest
