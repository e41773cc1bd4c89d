package node

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/swarm/traffic"
)

var growthSizes = flag.String("growth", "", "how many nodes TestControlTrafficOfANode has, one run after the other (default 6, 4 with -short)")

// controlTraffic holds what a node of a fleet sends a second to agree on the run, by kind: the mean of all nodes, and the most of one.
type controlTraffic struct{ mean, most map[string]sentEachSecond }

type sentEachSecond struct{ writes, bytes float64 }

// controlTraffic watches a fleet for a time.
func (f *fleet) controlTraffic(span time.Duration) controlTraffic {
	var before [][]traffic.Count
	for _, m := range f.members {
		before = append(before, m.node().swarm.Traffic())
	}
	time.Sleep(span)
	c := controlTraffic{map[string]sentEachSecond{}, map[string]sentEachSecond{}}
	for i, m := range f.members {
		for k, now := range m.node().swarm.Traffic() {
			writes, bytes := float64(now.SentWrites-before[i][k].SentWrites)/span.Seconds(), float64(now.SentBytes-before[i][k].SentBytes)/span.Seconds()
			mean, most := c.mean[now.Kind], c.most[now.Kind]
			n := float64(len(f.members))
			c.mean[now.Kind] = sentEachSecond{mean.writes + writes/n, mean.bytes + bytes/n}
			c.most[now.Kind] = sentEachSecond{max(most.writes, writes), max(most.bytes, bytes)}
		}
	}
	return c
}

// TestControlTrafficOfANode shows what each node of a run sends to agree on it while steps go on, with a stage or a replica on each: the log does not
// grow with the nodes, and of heartbeats each node sends a few for each that it hears, whose size does not grow.
func TestControlTrafficOfANode(t *testing.T) {
	sizes := *growthSizes
	if sizes == "" {
		if sizes = "6"; testing.Short() {
			sizes = "4"
		}
	}
	for _, text := range strings.Split(sizes, ",") {
		nodes, err := strconv.Atoi(text)
		if err != nil || nodes < 2 {
			t.Fatalf("-growth is %s: take numbers of nodes from 2 on, such as 4,16,64", sizes)
		}
		for _, what := range []string{"stages", "replicas"} {
			size := fleetSize{Steps: 10_000, Stages: nodes, Replicas: 1, CheckpointEvery: 10_000, MinNodes: nodes, Blocks: nodes, Lines: true}
			if what == "replicas" {
				size.Stages, size.Replicas, size.Blocks, size.Micros = 1, nodes, 2, nodes
			}
			t.Run(fmt.Sprintf("%d %s", nodes, what), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { showControlTraffic(t, size) })
			})
		}
	}
}

// showControlTraffic trains with a fleet, and checks what its nodes send.
func showControlTraffic(t *testing.T, size fleetSize) {
	f := newFleet(t, size, newTruth())
	began := time.Now()
	invite := f.add().found()
	for range size.MinNodes - 1 {
		f.add().join(invite)
	}
	f.untilStep(3)
	t.Logf("step 3 after %v", time.Since(began))
	from := f.truth.reached()
	const span = 10 * time.Second
	c := f.controlTraffic(span)
	t.Logf("%d steps in %v", f.truth.reached()-from, span)
	for _, kind := range []string{traffic.Log, traffic.Gossip, traffic.Commits, traffic.Alive, traffic.Other} {
		mean, most := c.mean[kind], c.most[kind]
		t.Logf("%-8s %6.1f writes/s %8.0f B/s a node, most of one %6.1f and %8.0f", kind, mean.writes, mean.bytes, most.writes, most.bytes)
	}
	if f.truth.reached() == from {
		t.Error("no steps were made")
	}
	if log := c.mean[traffic.Log]; log.writes == 0 || log.writes > 15 {
		t.Errorf("a node writes %.1f messages of the log a second, want 15 at most however many nodes there are", log.writes)
	}
	gossip, heard := c.mean[traffic.Gossip], float64(size.MinNodes)
	if gossip.writes == 0 || gossip.writes > 6*heard || gossip.bytes > 6*heard*1200 {
		t.Errorf("a node sends %.0f messages and %.0f bytes of gossip a second, want 6 of 1,200 bytes at most for each of %.0f nodes", gossip.writes, gossip.bytes, heard)
	}
}
