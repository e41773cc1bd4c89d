package plan

import (
	"cmp"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
)

// RunSpec is everything that decides a run's losses: model, data, hyper-parameters. It
// is committed first in the consensus log and never changes.
type RunSpec struct {
	Run   RunID        `json:"run"`
	Model model.Config `json:"model"`
	Train TrainSpec    `json:"train"`
	Data  DataSpec     `json:"data"`
	// Init names the parameters that training starts from; nil: they are made from the seed.
	Init *InitSpec `json:"init,omitempty"`
}

// InitSpec names a model's parameters that were made elsewhere, and the files that belong to it:
// the tokenizer's, and the config.json it came with.
type InitSpec struct {
	// Layers has the layers of Model in order, without its adapters unless Adapters says so.
	Layers []LayerInit `json:"layers"`
	// Adapters reports that the layers hold the model's adapters too; else they are made from
	// the seed.
	Adapters bool       `json:"adapters,omitempty"`
	Files    []DataFile `json:"files,omitempty"`
}

// LayerInit is one layer's parameters, [LayerLen] float32 little endian, in chunks.
type LayerInit struct {
	SizeBytes int64  `json:"size_bytes"`
	Chunks    []Hash `json:"chunks"`
}

// AllChunks returns the chunks of the layers and of the files.
func (s InitSpec) AllChunks() []Hash {
	var all []Hash
	for _, l := range s.Layers {
		all = append(all, l.Chunks...)
	}
	for _, f := range s.Files {
		all = append(all, f.Chunks...)
	}
	return all
}

// TrainSpec has the hyper-parameters of the optimizer and of the step.
type TrainSpec struct {
	Seed  uint64 `json:"seed"`
	Steps Step   `json:"steps"`
	// Micros micro-batches of MicroBatch sequences make one step.
	Micros     int `json:"micros"`
	MicroBatch int `json:"micro_batch"`
	// Learning rate: linear warm-up to LR over WarmupSteps, cosine to MinLR at DecayEnd, MinLR from there on.
	LR          float64 `json:"lr"`
	MinLR       float64 `json:"min_lr"`
	WarmupSteps Step    `json:"warmup_steps"`
	// DecaySteps is where the cosine ends; 0 is Steps.
	DecaySteps Step `json:"decay_steps,omitzero"`
	// Optimizer says how parameters are updated. Momentum is Muon's.
	Optimizer OptimizerRule `json:"optimizer,omitzero"`
	Momentum  float64       `json:"momentum,omitzero"`
	Beta1     float64       `json:"beta1"`
	Beta2     float64       `json:"beta2"`
	Eps       float64       `json:"eps"`
	// Decay is decoupled weight decay, on matrices only.
	Decay float64 `json:"decay"`
	// ClipNorm bounds the global gradient norm; 0 is off.
	ClipNorm float64 `json:"clip_norm"`
	// HeldOutEvery, CheckpointEvery count steps between evaluations and checkpoints. Without CheckpointEvery a step's
	// coordinator says when a checkpoint is due.
	HeldOutEvery    Step `json:"held_out_every"`
	CheckpointEvery Step `json:"checkpoint_every"`
	// KeepCheckpoints counts the newest checkpoints that stay.
	KeepCheckpoints int `json:"keep_checkpoints"`
	// SampleTokens is the length of the text that the finished model writes; 0 is none.
	SampleTokens int `json:"sample_tokens"`
	// Replicas and Stages fix the cut; 0 lets the planner choose.
	Replicas int `json:"replicas"`
	Stages   int `json:"stages"`
	// Schedule is the text of a schedule.Spec, empty for the planner's choice: 1f1b or interleaved
	// groups. Where it runs pipelines both ways, each of the Replicas has as many copies of the model
	// on the same devices.
	Schedule string `json:"schedule,omitzero"`
	// SumGroups is into how many groups Sums cuts the micro-batches, 0 for one each. Replicas take
	// whole groups, so that there are at most as many.
	SumGroups int `json:"sum_groups,omitzero"`
	// UnevenShares gives faster replicas more of a step's groups of micro-batches.
	UnevenShares bool `json:"uneven_shares"`
	// PostValidation lets the planner have workers apply a step before its commit (Plan.PostValidation), where that makes steps shorter
	// and devices have the memory to roll it back. Losses are the same.
	PostValidation bool `json:"post_validation,omitzero"`
	// Recompute says what blocks recompute to save memory.
	Recompute RecomputeRule `json:"recompute,omitzero"`
	// Shard says whether replicas hold their optimizer state in parts.
	Shard ShardRule `json:"shard,omitzero"`
	// DocumentMask keeps attention within the documents that a sequence is packed from.
	DocumentMask bool `json:"document_mask,omitzero"`
	// Storage is the precision that matrix products read. Checkpoints hold float32 under any rule.
	Storage StorageRule `json:"storage,omitzero"`
	// StochasticRounding rounds weights to BF16 by chance in place of to nearest, where they are
	// stored so.
	StochasticRounding bool `json:"stochastic_rounding,omitzero"`
	// Codec says how tensors travel between stages. Losses depend on where the model is cut
	// under any but the zero value.
	Codec CodecRule `json:"codec,omitzero"`
	// Sync says when replicas come together.
	Sync SyncRule `json:"sync,omitzero"`
	// MinNodes counts the active nodes that the first plan waits for.
	MinNodes int `json:"min_nodes"`
	// Voters says which nodes vote on the log.
	Voters VoterRule `json:"voters,omitzero"`
	// AwaitOwnerS is how many seconds members of the finished run stay for an owner that has not got the model yet.
	AwaitOwnerS int64 `json:"await_owner_s,omitzero"`
}

// DecayEnd returns the step at which the learning rate has come down to MinLR.
func (t TrainSpec) DecayEnd() Step { return cmp.Or(t.DecaySteps, t.Steps) }

// VoterRule says which nodes of a run vote on its log. The zero value is VotersAuto.
type VoterRule string

// With VotersAuto owners' nodes vote before others, and then those that have been in the run for a while. VotersOwners
// keeps the votes with owners' nodes. With VotersAny the oldest nodes vote, from the first minute on.
const (
	VotersAuto   VoterRule = "auto"
	VotersOwners VoterRule = "owners"
	VotersAny    VoterRule = "any"
)

// VoterRules lists the rules that there are.
func VoterRules() []VoterRule { return []VoterRule{VotersAuto, VotersOwners, VotersAny} }

// MomentVectors counts the vectors of optimizer state that AdamW keeps for each parameter. Muon keeps the first alone.
const MomentVectors = 2

// ExchangedBytes bounds the layers of a stage that replicas exchange at a time; a larger one goes alone. A stage waits for a few latencies of
// its links that way, not for as many with each layer. What comes of so much fits into an inbox, in whatever order it is waited for.
const ExchangedBytes = 32 << 20

// StageStack returns the configuration of a plan's stage, without a device, with the slots that a
// program asks for.
func (s RunSpec) StageStack(p Plan, at StageID, use schedule.Use) model.StackConfig {
	pipe, sums := p.Replicas[at.Replica], s.Train.Sums()
	share, _ := sums.Share(pipe.FirstMicro, pipe.Micros)
	stack := s.Stack(p.At(at), p.Shares(at), sums.Partials(share), use)
	stack.Undo = p.PostValidation
	return stack
}

// Stack returns the configuration of a stage in its place, without a device: with its shares of the
// optimizer state, nil for all of it, so many sums of gradients that wait, and the slots that a
// program asks for.
func (s RunSpec) Stack(p Placement, shares []model.Share, partials int, use schedule.Use) model.StackConfig {
	return model.StackConfig{
		Partials: partials,
		Model:    s.Model, First: p.Layers.First, End: p.Layers.End, MicroBatch: s.Train.MicroBatch,
		Slots: use.Slots, SplitBackward: use.Split, Segments: use.Segments, Moments: MomentVectors, Shares: shares,
		WholeMatrices: s.Train.Optimizer == Muon,
		DocumentMask:  s.Train.DocumentMask, Recompute: s.Train.Recompute.Of(p), Ahead: p.Ahead,
		Storage: s.Train.Storage.Of(p), Offload: p.Offload,
		Scratch:   s.Scratch(p.Layers),
		ScaleBits: model.LossScaleBits(s.Train.Micros * s.Train.MicroBatch * s.Model.Context),
	}
}

// DataSpec names the tokenised text: a stream of tokens in chunks that every node can fetch.
type DataSpec struct {
	// Chunks hold the stream in order.
	Chunks    []Hash `json:"chunks"`
	SizeBytes int64  `json:"size_bytes"`
	// HeldOutPermille of the stream's end is never trained on.
	HeldOutPermille int `json:"held_out_permille"`
	// Tokens describes the stream; nil is text, one byte a token.
	Tokens *TokenSpec `json:"tokens,omitempty"`
}

// TokenSpec describes a stream that a tokenizer made.
type TokenSpec struct {
	// WidthBytes of a token, little endian: 1, 2 or 4.
	WidthBytes int `json:"width_bytes"`
	// Vocab is one more than the greatest token.
	Vocab int `json:"vocab"`
	// EndOfText is the token after every document, or NoToken.
	EndOfText int32 `json:"end_of_text"`
	// Tokenizer identifies the tokenizer.
	Tokenizer Hash  `json:"tokenizer"`
	Documents int64 `json:"documents"`
	// Files has the tokenizer's own files, so that every node can turn tokens into text; bytes have
	// none.
	Files []DataFile `json:"files,omitempty"`
}

// DataFile is a file in chunks.
type DataFile struct {
	Name      string `json:"name"`
	Chunks    []Hash `json:"chunks"`
	SizeBytes int64  `json:"size_bytes"`
}

// NoToken stands for the absence of a token.
const NoToken = -1

// ByteVocab is the vocabulary of text whose tokens are bytes.
const ByteVocab = 256

// AllChunks returns the chunks of the stream and of the tokenizer's files.
func (d DataSpec) AllChunks() []Hash {
	if d.Tokens == nil {
		return d.Chunks
	}
	all := slices.Clone(d.Chunks)
	for _, f := range d.Tokens.Files {
		all = append(all, f.Chunks...)
	}
	return all
}

// TokenBytes returns the width of a token.
func (d DataSpec) TokenBytes() int {
	if d.Tokens == nil {
		return 1
	}
	return d.Tokens.WidthBytes
}

// TokenCount returns the length of the stream in tokens.
func (d DataSpec) TokenCount() int64 { return d.SizeBytes / int64(d.TokenBytes()) }

// Vocab returns how many tokens a model must know.
func (d DataSpec) Vocab() int {
	if d.Tokens == nil {
		return ByteVocab
	}
	return d.Tokens.Vocab
}

// EndOfText returns the token after every document, or NoToken.
func (d DataSpec) EndOfText() int32 {
	if d.Tokens == nil {
		return NoToken
	}
	return d.Tokens.EndOfText
}
