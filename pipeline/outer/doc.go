// Package outer brings replicas that train apart back together: local steps with an outer optimizer
// (Douillard et al. 2023, "DiLoCo", arXiv 2311.08105), also one part of the model after the other, and
// late (Douillard et al. 2025, "Streaming DiLoCo", arXiv 2501.18512).
//
// Nouns:
//
//   - An outer step is an update whose gradient is d = reference - parameters, averaged over the replicas,
//     and whose optimizer is SGD with Nesterov momentum.
//   - Vectors are a stretch of parameters with what its outer steps need: the reference, which all replicas
//     have in common, and the momentum. With one fragment, no delay and Alpha 0 the parameters of all replicas equal the
//     reference at the end of an outer step. Otherwise they never all do, and differ between replicas.
//
// All numbers come from kernels that add, scale and copy element by element: the result is the same to the bit on every
// backend, and does not depend on how layers are cut into stages or a layer into stretches. Who takes part
// in an outer step, with how many tokens, and after which inner steps (plan.Rounds), is for the caller to say, the same on all replicas.
//
// The package is pure but for the queue that it is given: it sends nothing and waits for nothing.
package outer
