package gossip

import "pnode/planner/plan"

// StepLoss is the loss of a committed step in nats per token.
type StepLoss struct {
	Generation plan.Generation
	Step       plan.Step
	Loss       float64
}
