package planner

import "pnode/pipeline/model"

// RunSpec is everything that decides a run's losses: model, data, hyper-parameters. It
// is committed first in the consensus log and never changes.
type RunSpec struct {
	Run   RunID        `json:"run"`
	Model model.Config `json:"model"`
	Train TrainSpec    `json:"train"`
	Data  DataSpec     `json:"data"`
}

// TrainSpec are the hyper-parameters of the optimizer and of the step.
type TrainSpec struct {
	Seed  uint64 `json:"seed"`
	Steps Step   `json:"steps"`
	// Micros micro-batches of MicroBatch sequences make one step.
	Micros     int `json:"micros"`
	MicroBatch int `json:"micro_batch"`
	// Learning rate: linear warm-up to LR over WarmupSteps, cosine to MinLR at Steps.
	LR          float64 `json:"lr"`
	MinLR       float64 `json:"min_lr"`
	WarmupSteps Step    `json:"warmup_steps"`
	Beta1       float64 `json:"beta1"`
	Beta2       float64 `json:"beta2"`
	Eps         float64 `json:"eps"`
	// Decay is decoupled weight decay, on matrices only.
	Decay float64 `json:"decay"`
	// ClipNorm bounds the global gradient norm; 0 is off.
	ClipNorm float64 `json:"clip_norm"`
	// HeldOutEvery, CheckpointEvery count steps between evaluations and checkpoints.
	HeldOutEvery    Step `json:"held_out_every"`
	CheckpointEvery Step `json:"checkpoint_every"`
	// KeepCheckpoints is how many of the newest checkpoints stay.
	KeepCheckpoints int `json:"keep_checkpoints"`
	// SampleTokens is the length of the text that the finished model writes; 0 is none.
	SampleTokens int `json:"sample_tokens"`
	// Replicas and Stages fix the cut; 0 lets the planner choose.
	Replicas int `json:"replicas"`
	Stages   int `json:"stages"`
	// MinNodes active nodes are waited for before the first plan.
	MinNodes int `json:"min_nodes"`
}

// DataSpec names the tokenised text: bytes in chunks that every node can fetch.
type DataSpec struct {
	// Chunks hold the token stream in order; one token is one byte.
	Chunks    []Hash `json:"chunks"`
	SizeBytes int64  `json:"size_bytes"`
	// HeldOutPermille of the stream's end is never trained on.
	HeldOutPermille int `json:"held_out_permille"`
}
