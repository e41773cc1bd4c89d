package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"pnode/kernels/emulate"
	"pnode/kernels/null"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
)

// Prediction is a random emulated cluster with the step that the planner predicts of its own plan, and the step that workers took.
type Prediction struct {
	Seed   uint64 `json:"seed"`
	Nodes  int    `json:"nodes"`
	Micros int    `json:"micros"`
	Layers int    `json:"layers"`
	// Plan is its first reason, Schedule the kind that it runs in.
	Plan     string `json:"plan"`
	Schedule string `json:"schedule"`
	Replicas int    `json:"replicas"`
	Stages   int    `json:"stages"`
	Tied     bool   `json:"tied"`
	// Predicted is the planner's step, Measured the median of the coordinator's steps after the first ones.
	Predicted schedule.Nanos `json:"predicted"`
	Measured  schedule.Nanos `json:"measured"`
	// NeedBytes is what the planner counts for a device, PeakBytes what buffers held on it at most: of the device with the most of the former.
	NeedBytes int64 `json:"need_bytes"`
	PeakBytes int64 `json:"peak_bytes"`
}

// Error returns by how much the predicted step is longer than the measured one, as a part of that.
func (p Prediction) Error() float64 { return float64(p.Predicted)/float64(p.Measured) - 1 }

// Held returns which part of what the planner counts for a device was taken.
func (p Prediction) Held() float64 { return float64(p.PeakBytes) / float64(p.NeedBytes) }

// Steps of a prediction: the first ones open the windows of connections, of the others the median counts.
const openingSteps, countedSteps = 2, 5

// goodputPermille is the share of an emulated line's rate that arrives as payload: what probes of it find.
const goodputPermille = 965

// predictionCluster is a run and the nodes, in the order of their IDs, that it is planned for.
type predictionCluster struct {
	in       planner.Input
	profiles []emulate.Profile
	links    [][]link.LinkConditions // from one node to another
}

// newPredictionCluster returns the cluster of a seed: two to eight unlike devices, lines of 1 to 150 ms and of 10 to 1000 Mbit/s between
// any two of them, over uplinks of the fastest one's rate, and 2 to 64 micro-batches a step. Most devices have room for a part of the model. A micro-batch of the
// whole model takes the fastest device 0.1 to 1 s. Calls take half of the devices up to 50 µs besides.
func newPredictionCluster(seed uint64) predictionCluster {
	const ofPredictions, ofCalls = 41, 42
	rng, calls := rand.New(rand.NewPCG(seed, ofPredictions)), rand.New(rand.NewPCG(seed, ofCalls))
	nodes := 2 + rng.IntN(7)
	run := newRun(model.Config{
		Vocab: 64 << rng.IntN(4), Context: scheduleContext, Blocks: 4 + rng.IntN(9), Heads: 2, Channels: scheduleChannels, UntiedHead: rng.IntN(2) == 0,
	})
	run.Train.Micros, run.Train.SumGroups = 2<<rng.IntN(6), 0
	run.Train.UnevenShares = rng.IntN(2) == 0
	c := predictionCluster{in: planner.InputOf(run)}
	whole, flops := int64(0), int64(0)
	for _, k := range c.in.Costs {
		whole += 4*k.ParamBytes + 4*k.SavedBytes
		flops += k.ForwardFLOPs + k.InputFLOPs + k.WeightFLOPs
	}
	fastest := flops * 1000 / (100 + rng.Int64N(900))
	tight := rng.IntN(2) == 0
	for range nodes {
		p := emulate.Profile{Model: "emulated", MatMulFLOPS: fastest * 1000 / (1000 + rng.Int64N(4000)), MemoryBytesPerS: 1 << 33, MemoryBytes: 1 << 40}
		p.AttentionFLOPS = p.MatMulFLOPS * (400 + rng.Int64N(600)) / 1000
		if tight {
			p.MemoryBytes = whole/4 + rng.Int64N(2*whole)
		}
		if calls.IntN(2) == 0 {
			p.CallTime = time.Duration(calls.Int64N(int64(50 * time.Microsecond)))
		}
		c.profiles = append(c.profiles, p)
	}
	c.links = make([][]link.LinkConditions, nodes)
	for i := range c.links {
		c.links[i] = make([]link.LinkConditions, nodes)
	}
	// Sites: within them 1 to 10 ms and at least 100 Mbit/s.
	sites := make([]int, nodes)
	count := 1 + rng.IntN(3)
	for i := range sites {
		sites[i] = rng.IntN(count)
	}
	for i := range nodes {
		for j := range i {
			shape := link.LinkConditions{BytesPerS: 12_500_000 << rng.IntN(4), Delay: time.Millisecond + time.Duration(rng.Int64N(int64(9*time.Millisecond)))}
			if sites[i] != sites[j] {
				shape = link.LinkConditions{BytesPerS: 1_250_000 << rng.IntN(7), Delay: time.Millisecond + time.Duration(rng.Int64N(int64(149*time.Millisecond)))}
			}
			c.links[i][j], c.links[j][i] = shape, shape
		}
	}
	return c
}

// join names the nodes, in the order of their IDs.
func (c *predictionCluster) join(peers []plan.PeerID) {
	for i, p := range c.profiles {
		m := planner.Member{Peer: peers[i], Name: fmt.Sprintf("node-%d", i), Profile: plan.Profile{Devices: []plan.DeviceProfile{{
			Name: "cpu", Model: p.Model, MatMulFLOPS: p.MatMulFLOPS, AttentionFLOPS: p.AttentionFLOPS, MemoryBytesPerS: p.MemoryBytesPerS, MemoryFreeBytes: p.MemoryBytes, CallNanos: p.CallTime.Nanoseconds(),
		}}}}
		for j, l := range c.links[i] {
			if i != j {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: peers[j], BytesPerS: l.BytesPerS * goodputPermille / 1000, RTTNanos: 2 * l.Delay.Nanoseconds()})
			}
		}
		c.in.Members = append(c.in.Members, m)
	}
}

// Predict plans for the cluster of a seed, runs the plan, and compares.
func Predict(ctx context.Context, seed uint64) (out Prediction, err error) {
	c := newPredictionCluster(seed)
	rig, err := newScheduleRig(len(c.profiles), link.LinkConditions{})
	if err != nil {
		return out, err
	}
	defer rig.close()
	c.join(rig.peers)
	for i, row := range c.links {
		fastest := int64(0)
		for j, shape := range row {
			if i != j {
				rig.network.SetConditions(rig.peers[i], rig.peers[j], queued(shape))
				fastest = max(fastest, shape.BytesPerS)
			}
		}
		rig.network.SetUplink(rig.peers[i], fastest)
	}
	details, err := planner.MakeWithDetails(ctx, c.in)
	if err != nil {
		return out, fmt.Errorf("seed %d: %w", seed, err)
	}
	p, reasons := details.Plan, details.Reasons
	out = Prediction{
		Seed: seed, Nodes: len(c.profiles), Micros: c.in.Run.Train.Micros, Layers: len(c.in.Costs), Plan: reasons[0].Text, Tied: !c.in.Run.Model.UntiedHead,
		Schedule: p.Schedule, Replicas: len(p.Replicas), Stages: len(p.Replicas[0].Stages), Predicted: schedule.Nanos(reasons[0].Nanos),
	}
	took, peaks, err := rig.steps(ctx, &c, p)
	if err != nil {
		return out, fmt.Errorf("seed %d: %w", seed, err)
	}
	for _, d := range details.Devices {
		if peak := peaks[d.Worker]; out.NeedBytes == 0 || float64(peak)/float64(d.NeedBytes) > out.Held() {
			out.NeedBytes, out.PeakBytes = d.NeedBytes, peak
		}
	}
	slices.Sort(took)
	out.Measured = schedule.Nanos(took[len(took)/2])
	return out, nil
}

// steps runs a plan and returns how long each of the counted steps took its coordinator, and how many bytes each worker's buffers held at most.
func (r *scheduleRig) steps(ctx context.Context, c *predictionCluster, p plan.Plan) (took []time.Duration, peaks map[plan.WorkerID]int64, err error) {
	devices := map[plan.WorkerID]*emulate.Device{}
	var configs []pipeline.Config
	for i, e := range r.endpoints {
		worker := plan.WorkerID{Peer: r.peers[i], Device: "cpu"}
		if !slices.Contains(p.Workers(), worker) {
			continue
		}
		device, err := emulate.New(null.New(), emulate.Options{Name: "cpu", Profile: c.profiles[i], Slack: emulate.PacedSlack})
		if err != nil {
			return nil, nil, err
		}
		devices[worker] = device
		session := e.Session(p.Generation, p.Peers())
		defer session.Close()
		session.Warm(pipeline.StepBytes(c.in.Run), p.Neighbours(r.peers[i])...)
		configs = append(configs, unattended(pipeline.Config{
			Worker: worker, Run: c.in.Run, Plan: p, Device: device,
			Data: randomTokens{vocab: c.in.Run.Model.Vocab, context: c.in.Run.Model.Context}, Exchange: pipeline.Paced(session, device),
		}))
	}
	var mu sync.Mutex
	err = train(ctx, openingSteps+countedSteps, configs, nil, func(w plan.WorkerID, s pipeline.StepResult) {
		mu.Lock()
		defer mu.Unlock()
		if w == p.Coordinator() && s.Step > openingSteps && len(took) < countedSteps {
			took = append(took, s.Total)
		}
	})
	if err == nil && len(took) < countedSteps {
		err = errors.New("bench: the coordinator ended early")
	}
	peaks = map[plan.WorkerID]int64{}
	for worker, d := range devices {
		peaks[worker] = d.PeakBytes()
	}
	return took, peaks, err
}

// queued gives a line a queue for what it carries in a round trip and 200 ms.
func queued(shape link.LinkConditions) link.LinkConditions {
	roundTrip := int64(2*shape.Delay + 200*time.Millisecond)
	shape.QueueBytes = max(1<<20, int(shape.BytesPerS/1000*roundTrip/int64(time.Millisecond)))
	return shape
}

// Predictions holds the comparisons of several clusters.
type Predictions []Prediction

// Errors returns the mean distance of predicted from measured steps, as a part of the latter, and the cluster with the largest one.
func (all Predictions) Errors() (mean float64, worst Prediction) {
	for _, p := range all {
		mean += max(p.Error(), -p.Error()) / float64(len(all))
	}
	return mean, slices.MaxFunc(all, func(a, b Prediction) int {
		return cmp.Compare(max(a.Error(), -a.Error()), max(b.Error(), -b.Error()))
	})
}

// Fullest returns the cluster with the device that took most of what the planner counts for it.
func (all Predictions) Fullest() Prediction {
	return slices.MaxFunc(all, func(a, b Prediction) int { return cmp.Compare(a.Held(), b.Held()) })
}

// firstWord returns a schedule's kind without its parameters.
func firstWord(schedule string) string {
	word, _, _ := strings.Cut(schedule, ":")
	return word
}
