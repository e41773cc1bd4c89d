// Package model is the transformer a run trains: which layers it has, where their
// parameters lie, how they start, what they cost, and which kernel calls carry a
// micro-batch forward and backward through a contiguous range of them.
//
// Nouns:
//
//   - Config: sizes and family of a model, GPT-2's or Llama's. A plan distributes its
//     layers: 0 is the embedding (tokens, learned positions), 1..L are the blocks, L+1 is
//     the head (final norm, its matrix or a tied copy of the embedding's, the loss).
//   - Tensor: a named place in the flat float32 vector that holds a layer's parameters;
//     gradient and optimizer moments have the layout of the part that is trained.
//   - Stack: layers [First,End) on one device, with parameters, gradients and Slots sets
//     of saved activations.
//   - slot: one micro-batch in flight through a stack.
//   - Segment: a part of every sequence of a micro-batch, which a pass may take alone.
//   - Recompute: what a block drops after its forward pass and computes again.
//   - Storage: float32 throughout, or BF16 or F16 for what matrix products read.
//   - LayerCost: FLOPs and bytes of one layer for one micro-batch. Memory: what a stack
//     allocates, known before it does.
//   - LoRA: adapters of a frozen model; adapter: one of them in a linear layer.
//   - Decoder: the whole model on one device that continues a sequence with a key-value
//     cache.
//
// The forward and backward pass are lists of kernels.Call and nothing else: the host
// does no arithmetic in a step, and a stack allocates everything when it is made. Every
// layer issues the same calls in the same order however the model is cut, and the full
// backward pass is the input pass followed by the weight pass layer by layer, so losses
// and gradients are the same to the bit for any cut and any split of the backward pass. So are
// they for passes that take a sequence in segments: what rows have in common stays whole.
// Recomputation makes the same calls on the same inputs, so it changes no bit either.
// The tied copy has its own gradient: summing both ends is the caller's business, and so
// are optimizer, reductions and the choice of micro-batches.
//
// Linear weights are stored [out,in], row-major: y = x W' + b.
//
// pipeline runs stacks, pipeline/generate decodes, planner/cost reads Costs. The
// package imports kernels and never a backend, the network or the clock.
package model
