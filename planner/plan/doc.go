// Package plan declares the nouns of the whole program, each a defined type: who takes part
// (PeerID, Profile), what is trained (RunSpec, Step, Micro), how it is cut (Plan, Pipeline,
// Placement, LayerRange, Codec) and why (Reason). Replicas sum their gradients in every step, or make
// local steps (SyncRule, Local, Own, Rounds), on the samples that a Stream says. It holds values and the rules they obey on
// their own: validation, canonical bytes, the action lists that a plan stands for. It decides
// nothing; package planner does.
//
// Everything may import it. It imports pipeline/schedule, pipeline/model and kernels/quant, and
// nothing that does I/O.
package plan
