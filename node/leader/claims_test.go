package leader

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Attack: a profile with one device name twice, in a log of before such were refused; then a death. Every plan
// failed until that node went. The others go on without it, and the plan says why.
func TestOneDeviceNameTwiceThenADeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := rehearsedRun()
		run.Train.Stages = 0
		twice := withDevices(1)
		twice.Devices = append(twice.Devices, twice.Devices[0])
		log := &oneLeader{state: consensus.State{Run: &run, Epoch: 1, Members: []consensus.Member{
			{Peer: "a", State: consensus.Active, Profile: withDevices(1)},
			{Peer: "b", State: consensus.Active, Profile: withDevices(1)},
			{Peer: "dead", State: consensus.Active, Profile: withDevices(1)},
			{Peer: "mallory", State: consensus.Active, Label: "mallory", Profile: twice},
		}}}
		beats := gossip.NewTracker()
		l := New(Config{Self: "a", Consensus: log, Peers: strangers{}, Heartbeats: beats, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		for range int((DeadAfter + UnreachableAfter) / time.Second) {
			for _, p := range []plan.PeerID{"b", "mallory"} {
				beats.Note(gossip.Heartbeat{Peer: p}, time.Now())
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		cancel()
		<-ended
		var planned consensus.SetPlan
		for _, e := range log.proposed {
			if p, ok := e.(consensus.SetPlan); ok {
				planned = p
			}
		}
		s := log.State()
		if m, _ := s.Member("dead"); m.State != consensus.Gone || planned.Plan.Generation == 0 || planned.Plan.Places("dead") || planned.Plan.Places("mallory") {
			t.Fatalf("the dead is %s, plan %+v", m.State, planned.Plan)
		}
		if reasons := strings.Join(planned.Reasons, "\n"); !strings.Contains(reasons, `mallory gets no stage: bad profile: devices[1].name is "gpu:0"`) {
			t.Errorf("reasons:\n%s", reasons)
		}
	})
}
