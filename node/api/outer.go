package api

import "pnode/planner/plan"

// ReplicaStatus says how far a replica with local steps has come, and what it does.
type ReplicaStatus struct {
	Replica plan.Replica `json:"replica"`
	// Peer is the node of its coordinator, Name what people call it.
	Peer plan.PeerID `json:"peer"`
	Name string      `json:"name"`
	// Step is its newest inner step, with the mean Loss of its share of the micro-batches, 0 before the first one: a step of the run once an outer step
	// counts it. Made of the Of inner steps of the round are made.
	Step plan.Step `json:"step"`
	Loss float64   `json:"loss"`
	Made plan.Step `json:"made"`
	Of   plan.Step `json:"of"`
	// TokensPerS is the speed of its inner steps; 0 is unknown.
	TokensPerS float64 `json:"tokens_per_s,omitempty"`
	// State is ReplicaComputes, ReplicaEnded, ReplicaSilent or ReplicaLeftOut, Text the same in words, with what it waits for.
	State string `json:"state"`
	Text  string `json:"text"`
}

// States of a replica in a round.
const (
	// ReplicaComputes makes inner steps, ReplicaEnded has made its own and waits for the outer step.
	ReplicaComputes = "computes"
	ReplicaEnded    = "ended"
	// ReplicaSilent is not heard of, ReplicaLeftOut is not waited for.
	ReplicaSilent  = "silent"
	ReplicaLeftOut = "left out"
)

// Round is the round of local steps under way.
type Round struct {
	// From is the outer step before it, End the last inner step that replicas make in it, unless it is Closed: then each ends with its next one.
	From   plan.Step `json:"from"`
	End    plan.Step `json:"end"`
	Closed bool      `json:"closed,omitempty"`
	// Text says it in a sentence, with who is waited for.
	Text string `json:"text"`
}

// OuterStep is one of replicas with local steps: what each learned in the steps after From up to To went into one mean.
type OuterStep struct {
	Generation plan.Generation `json:"generation"`
	From       plan.Step       `json:"from"`
	To         plan.Step       `json:"to"`
	Replicas   []OuterPart     `json:"replicas"`
	// Drift is how far the replicas' outer gradients were from their mean, as a part of its norm: 0 where all learned the same, 1 where what they have
	// in common is as large as what they do not. nil: not heard.
	Drift *float64 `json:"drift,omitempty"`
	// Bytes counts those of all messages between replicas by the plan, BytesPerToken so many for each token that counts, EveryStepBytesPerToken what sums of
	// gradients in every step would be.
	Bytes                  int64   `json:"bytes"`
	BytesPerToken          float64 `json:"bytes_per_token"`
	EveryStepBytesPerToken float64 `json:"every_step_bytes_per_token"`
	// ExchangeS is for how long the replica stood still that was waited for last: what messages, log and outer step take. WaitedShare is the part of
	// all replicas' time in the round for which they stood still. In HiddenS messages came while inner steps were made, at most. 0: not heard.
	ExchangeS   float64 `json:"exchange_s,omitempty"`
	WaitedShare float64 `json:"waited_share,omitempty"`
	HiddenS     float64 `json:"hidden_s,omitempty"`
	// SentBytes went from this node to other replicas; 0 where it has no part.
	SentBytes int64 `json:"sent_bytes,omitempty"`
	// Text says it in a sentence.
	Text string `json:"text"`
}

// OuterPart is a replica's part in an outer step.
type OuterPart struct {
	Replica plan.Replica `json:"replica"`
	// Steps are its inner steps that count; 0: none does. Why says why not.
	Steps plan.Step `json:"steps"`
	Why   string    `json:"why,omitempty"`
	// Norm is of its outer gradient, Cosine between this and the mean of the others': of two replicas, between both. nil: not heard, or not counted.
	Norm   *float64 `json:"norm,omitempty"`
	Cosine *float64 `json:"cosine,omitempty"`
	// Far says in words that it is far from the others; empty for most.
	Far string `json:"far,omitempty"`
	// RoundS is how long its round took, WaitedS for how long it stood still; 0: not heard.
	RoundS  float64 `json:"round_s,omitempty"`
	WaitedS float64 `json:"waited_s,omitempty"`
}

// Quiet reports whether an outer step is like most: all replicas counted, and none is far from the others.
func (o OuterStep) Quiet() bool {
	for _, p := range o.Replicas {
		if p.Steps == 0 || p.Far != "" {
			return false
		}
	}
	return true
}
