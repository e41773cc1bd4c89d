package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"pnode/pipeline"
	"pnode/pipeline/wire"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm"
)

// Beat is the heartbeat that every member gossips once a second: that it lives, and
// what it is doing. The planner's liveness and every node's status come from beats.
type Beat struct {
	Peer       plan.PeerID     `json:"peer"`
	Phase      string          `json:"phase"`
	Generation plan.Generation `json:"generation"`
	// Stalled is the generation this node had to give up; 0 is none.
	Stalled plan.Generation `json:"stalled,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	// Lacks: it was given up because chunks of the checkpoint that it starts from could not
	// be had.
	Lacks bool `json:"lacks,omitempty"`
	// Blocked is why the planner, if this node is, has no plan.
	Blocked string `json:"blocked,omitempty"`
	// Finished is the step that the run was finished at; 0 is not yet.
	Finished plan.Step   `json:"finished,omitempty"`
	Stages   []BeatStage `json:"stages,omitempty"`
	Step     plan.Step   `json:"step"`
	// Loss of Step; only meaningful when Step is not 0.
	Loss       float64 `json:"loss"`
	TokensPerS float64 `json:"tokens_per_s"`
	// StepNanos is what Step took here, Links what its messages showed.
	StepNanos int64      `json:"step_nanos,omitempty"`
	Links     []BeatLink `json:"links,omitempty"`
	// Course is the one on which Step went.
	Course string `json:"course,omitempty"`
	// Wanted is the course that the planner, if this node is, wants the plan to take.
	Wanted *Wanted `json:"wanted,omitempty"`
}

// Wanted is a course for the steps of a generation, and why it is better than the plan's.
type Wanted struct {
	Generation plan.Generation `json:"generation"`
	Course     string          `json:"course"`
	Why        string          `json:"why"`
}

// BeatStage is where one placement's last step went, in nanoseconds.
type BeatStage struct {
	Replica       plan.Replica `json:"replica"`
	Stage         plan.Stage   `json:"stage"`
	ForwardNanos  int64        `json:"forward_nanos"`
	BackwardNanos int64        `json:"backward_nanos"`
	WaitNanos     int64        `json:"wait_nanos"`
	UpdateNanos   int64        `json:"update_nanos"`
	// FellBack of the tensors that the stage sent in the step were written in a better codec
	// than the plan's; RelError is the largest relative error of one.
	FellBack int     `json:"fell_back,omitempty"`
	RelError float64 `json:"rel_error,omitempty"`
}

const (
	beatEvery    = time.Second
	maxBeatBytes = 16 << 10
	maxReason    = 300
	// maxBeatStages bounds the placements of one node that are told of, which fit.
	maxBeatStages = 64
)

var errBadBeat = errors.New("node: bad heartbeat")

func (b Beat) encode() []byte {
	b.Reason, b.Blocked = wire.Clip(b.Reason, maxReason), wire.Clip(b.Blocked, maxReason)
	b.Stages = b.Stages[:min(len(b.Stages), maxBeatStages)]
	data, err := json.Marshal(b)
	if err != nil {
		panic("node: heartbeat does not marshal: " + err.Error()) // losses are finite, see progress
	}
	return data
}

func decodeBeat(data []byte) (Beat, error) {
	if len(data) > maxBeatBytes {
		return Beat{}, fmt.Errorf("%w: %d bytes, at most %d", errBadBeat, len(data), maxBeatBytes)
	}
	var b Beat
	if err := strict.Decode(data, &b); err != nil {
		return Beat{}, fmt.Errorf("%w: %w", errBadBeat, err)
	}
	if len(b.Stages) > maxBeatStages || len(b.Links) > maxBeatLinks {
		return Beat{}, fmt.Errorf("%w: %d stages and %d links, at most %d and %d", errBadBeat, len(b.Stages), len(b.Links), maxBeatStages, maxBeatLinks)
	}
	return b, nil
}

// heartbeats gossips a heartbeat every second until ctx ends, and tells when nothing moves.
func (n *Node) heartbeats(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		n.beat()
		n.tellWaiting(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// beat gossips this node's heartbeat and notes it here.
func (n *Node) beat() {
	b := Beat{Peer: n.self}
	n.shared.fillBeat(&b)
	n.progress.fillBeat(&b)
	b.Links = n.meter.links()
	if state := n.raft.State(); state.Finished {
		b.Finished = state.Checkpoint.Step
	}
	n.noteBeat(b)
	if err := n.swarm.Publish(n.base, swarm.TopicEvents, b.encode()); err != nil {
		n.log.Debug("heartbeat", "cause", err)
	}
}

// listenToBeats begins to note the others' heartbeats.
func (n *Node) listenToBeats() error {
	valid := func(from plan.PeerID, data []byte) error {
		b, err := decodeBeat(data)
		if err == nil && b.Peer != from {
			err = fmt.Errorf("%w: it speaks for %.80q", errBadBeat, b.Peer)
		}
		return err
	}
	return n.swarm.Subscribe(swarm.TopicEvents, valid, func(_ plan.PeerID, data []byte) {
		if b, err := decodeBeat(data); err == nil {
			n.noteBeat(b)
		}
	})
}

// noteBeat takes in a heartbeat, this node's own or another's.
func (n *Node) noteBeat(b Beat) {
	n.beats.note(b, time.Now())
	select {
	case n.heardBeat <- struct{}{}:
	default: // it will look anyway
	}
}

// times turns a worker's times into a heartbeat's.
func times(t pipeline.StageTimes) BeatStage {
	sent := t.Forth.Plus(t.Back)
	return BeatStage{
		FellBack: sent.FellBack, RelError: sent.RelError,
		Replica: t.Replica, Stage: t.Stage,
		ForwardNanos: t.Forward.Nanoseconds(), BackwardNanos: t.Backward.Nanoseconds(),
		WaitNanos: t.Wait.Nanoseconds(), UpdateNanos: t.Update.Nanoseconds(),
	}
}
