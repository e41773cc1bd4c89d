package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"pnode/planner"
)

// Beat is the heartbeat that every member gossips once a second: that it lives, and
// what it is doing. The planner's liveness and every node's status come from beats.
type Beat struct {
	Peer       planner.PeerID     `json:"peer"`
	Phase      string             `json:"phase"`
	Generation planner.Generation `json:"generation"`
	// Stalled is the generation this node had to give up; 0 is none.
	Stalled planner.Generation `json:"stalled,omitempty"`
	Reason  string             `json:"reason,omitempty"`
	Stages  []BeatStage        `json:"stages,omitempty"`
	Step    planner.Step       `json:"step"`
	// Loss of Step; only meaningful when Step is not 0.
	Loss       float64 `json:"loss"`
	TokensPerS float64 `json:"tokens_per_s"`
}

// BeatStage is where one placement's last step went, in nanoseconds.
type BeatStage struct {
	Replica       planner.Replica `json:"replica"`
	Stage         planner.Stage   `json:"stage"`
	ForwardNanos  int64           `json:"forward_nanos"`
	BackwardNanos int64           `json:"backward_nanos"`
	WaitNanos     int64           `json:"wait_nanos"`
	UpdateNanos   int64           `json:"update_nanos"`
}

const (
	beatEvery    = time.Second
	maxBeatBytes = 16 << 10
	maxReason    = 300
)

var errBadBeat = errors.New("node: bad heartbeat")

func (b Beat) encode() []byte {
	if len(b.Reason) > maxReason {
		b.Reason = b.Reason[:maxReason]
	}
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
	if err := strictJSON(data, &b); err != nil {
		return Beat{}, fmt.Errorf("%w: %w", errBadBeat, err)
	}
	return b, nil
}
