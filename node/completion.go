package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pnode/kernels"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/gossip"
	"pnode/node/ingest"
	"pnode/node/textsamples"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/alpn"
	"pnode/swarm/consensus"
	"pnode/swarm/topics"
)

// completionTime bounds how long a node of a finished run looks for others that do not know it
// yet, and then how long it repeats to them that it is.
const completionTime = 2 * time.Second

// announceCompletion tells those who still look for a run that it is finished: a node that was
// away at the end comes back to nobody. Where no other node runs it takes no time. It returns the later
// end that an owner gives the run meanwhile, 0 for none.
func announceCompletion(ctx context.Context, cfg config.Config, kept membership, out Output) plan.Step {
	if len(kept.Known) == 0 || alpn.NobodyListens(ctx, out.simulated(), kept.Known...) {
		return 0
	}
	extends, err := sayFinished(ctx, cfg, kept, out)
	if err != nil {
		out.Log.Info("nobody to tell that the run is finished", "cause", err)
	}
	return extends
}

// sayFinished repeats a heartbeat: the other end listens to it a moment after the connection. It ends early where an owner
// says that the run gets a later end.
func sayFinished(ctx context.Context, cfg config.Config, kept membership, out Output) (extends plan.Step, err error) {
	identity, err := admission.LoadIdentity(cfg.Dir)
	if err != nil {
		return 0, err
	}
	s, err := swarm.New(ctx, swarm.Config{
		Identity: identity, Run: kept.Run, OwnerKey: kept.OwnerKey, Capability: kept.Capability, Logger: out.Log, Simulated: out.simulated(),
	})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	heard := gossip.NewTracker()
	if err := heard.Listen(s.Topics(), nil); err != nil {
		return 0, err
	}
	reaching, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	if err := s.Connect(reaching, kept.Known...); err != nil {
		return 0, err
	}
	said := gossip.Heartbeat{Peer: s.ID(), Phase: string(Stopped), Finished: kept.Finished}.Encode()
	tick := time.NewTicker(gossip.Every / 4)
	defer tick.Stop()
	for end := time.Now().Add(completionTime); time.Now().Before(end); {
		if err := s.Topics().Publish(ctx, topics.Events, said); err != nil {
			return 0, err
		}
		for _, o := range kept.Owners {
			if b, _ := heard.Last(o); b.Extends > kept.Finished {
				return b.Extends, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return 0, nil
}

// endWords holds what the others say about the end of the run, and who of them is believed.
type endWords struct {
	Said map[plan.PeerID]plan.Step
	// Owner reports whether a peer is an owner of the run.
	Owner func(plan.PeerID) bool
	// Voters are those that this node knows, which may be itself too.
	Voters []plan.PeerID
}

// believed returns the step at which the run was finished: an owner says so, or a majority of the voters known here
// does, of one and the same step. It is 0 while too few say so: any member can send a heartbeat.
func (w endWords) believed() plan.Step {
	votes := map[plan.Step]int{}
	for _, p := range slices.Sorted(maps.Keys(w.Said)) {
		step := w.Said[p]
		if w.Owner(p) {
			return step
		}
		if slices.Contains(w.Voters, p) {
			votes[step]++
		}
	}
	for step, n := range votes {
		if n > len(w.Voters)/2 {
			return step
		}
	}
	return 0
}

// doubt tells people what is said of the end, by whom, and how to check it.
func (w endWords) doubt(nameOf func(plan.PeerID) string) string {
	var said []string
	for _, p := range slices.Sorted(maps.Keys(w.Said)) {
		said = append(said, fmt.Sprintf("%s (at step %d)", nameOf(p), w.Said[p]))
	}
	return fmt.Sprintf("%s says that the run is finished, which counts once an owner or most of the %d voters known here say it too; trying on. "+
		"To check it, start another of their nodes, or look with `pnode checkpoints` or `pnode export` in the folder of one", strings.Join(said, ", "), len(w.Voters))
}

// awaitFinished blocks until those who may say it have said that the run is finished, and returns the step; 0 when ctx
// ends first. It calls tell when others begin to say so.
func awaitFinished(ctx context.Context, words func() endWords, tell func(endWords)) plan.Step {
	tick := time.NewTicker(gossip.Every / 2)
	defer tick.Stop()
	told := 0
	for {
		w := words()
		if step := w.believed(); step > 0 {
			return step
		}
		if len(w.Said) > told {
			told = len(w.Said)
			tell(w)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0
		}
	}
}

// endWords returns what was heard of the run's end.
func (n *Node) endWords() endWords {
	owners := n.raft.State().Owners
	return endWords{Said: n.heartbeats.Finished(), Voters: n.raft.Quorum().Voters, Owner: func(p plan.PeerID) bool {
		c, ok := n.swarm.Capability(p)
		return slices.Contains(owners, p) || ok && c.Role == admission.RoleOwner
	}}
}

// completion records what the task that finishes the run has done of it.
type completion struct {
	sampled  bool
	sample   string
	accepted bool // the log has taken the end of the run
}

// finish has the finished model write a sample and ends the run for everyone. It is begun again
// until the log says here that the run is finished, which may be a while after it says so elsewhere.
func (l *loop) finish(ctx context.Context, state consensus.State) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	l.completion.sampleOnce(func() (string, error) { return l.sample(ctx, state) }, func(err error) {
		if !errors.Is(err, context.Canceled) { // this node is being closed
			l.log.Warn("the finished model has written no sample", "cause", err)
		}
	})
	if l.completion.accepted {
		return
	}
	err := l.raft.Propose(ctx, consensus.Finish{Sample: l.completion.sample})
	if l.completion.accepted = err == nil; err != nil && ctx.Err() == nil && !errors.Is(err, consensus.ErrClosed) {
		l.log.Warn("the run is not marked as finished yet", "cause", err)
	}
}

// sampleOnce has write make the sample the first time. It calls failed if there is none.
func (c *completion) sampleOnce(write func() (string, error), failed func(error)) {
	if c.sampled {
		return
	}
	var err error
	if c.sample, err = write(); err != nil {
		failed(err)
	}
	c.sampled = true
}

// sample returns some text of the model of the newest checkpoint. A model that was trained on a
// device which computes nothing has none to write.
func (l *loop) sample(ctx context.Context, state consensus.State) (string, error) {
	run := *state.Run
	if run.Train.SampleTokens == 0 || l.hardware.Idle() {
		return "", nil
	}
	return l.chunks().Sample(ctx, ingest.Writing{
		Run: run, Tokens: run.Train.SampleTokens, MaxBytes: consensus.MaxSampleBytes, Device: l.hardware.First(), Params: l.custody.paramsOf(ctx, state.Checkpoint),
	})
}

// paramsOf returns what reads parameters of a layer of a checkpoint. The checkpoint stays here while somebody reads.
func (c *custody) paramsOf(ctx context.Context, made consensus.Checkpoint) func(layer int, dst []float32) error {
	return func(layer int, dst []float32) error {
		c.readers.renew(made.Step, time.Now())
		return c.whole.Read(ctx, made.Layers[layer], kernels.Float32Bytes(dst))
	}
}

// newSampler returns what has the model write while it trains, on one core of the processor: the devices go on with their steps.
func newSampler(n *Node, every plan.Step, prompt string) *textsamples.Sampler {
	return textsamples.New(textsamples.Config{
		Every: every, Spec: func() plan.RunSpec { return *n.raft.State().Run }, Publish: func(e api.Event) { n.monitor.Publish(e) }, Log: n.log,
		Write: func(ctx context.Context, run plan.RunSpec, made consensus.Checkpoint) (string, error) {
			if n.hardware.Idle() {
				return "", nil
			}
			device, err := n.hardware.OneCore()
			if err != nil {
				return "", err
			}
			text, err := n.chunks().Sample(ctx, ingest.Writing{
				Run: run, Prompt: prompt, Tokens: textsamples.Tokens, MaxBytes: textsamples.MaxBytes, Device: device, Params: n.custody.paramsOf(ctx, made),
			})
			return text, errors.Join(err, device.Close())
		},
	})
}
