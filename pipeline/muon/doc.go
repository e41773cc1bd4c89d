// Package muon updates matrices by their momentum made orthogonal (Jordan et al. 2024, "Muon: An optimizer for hidden
// layers in neural networks"), with decay and the step size of Liu et al. 2025, "Muon is Scalable for LLM Training"
// (arXiv 2502.16982), section 2.2: an update has the size of AdamW's, so that both go by one learning rate.
//
// A Matrix is updated in two calls: Accumulate its gradient, Apply what came of that. Between them the caller reads the
// norm that Accumulate has written, of all matrices together, since that waits for the device. What lasts is the momentum: a
// matrix has one vector of optimizer state, where AdamW has two.
//
// All is done by kernels on whole matrices: the result depends on a matrix, its gradient and the device's products, not on
// the stage that it is in. The package is pure but for the queue that it is given: it waits for nothing.
package muon
