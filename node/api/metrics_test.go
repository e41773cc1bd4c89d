package api

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"pnode/planner/plan"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Lines of the text format of Prometheus.
var (
	helpLine   = regexp.MustCompile(`^# HELP pnode_[a-z_0-9]+ [^\n]+$`)
	typeLine   = regexp.MustCompile(`^# TYPE pnode_[a-z_0-9]+ gauge$`)
	sampleLine = regexp.MustCompile(`^pnode_[a-z_0-9]+(\{[a-z]+="([^"\\]|\\[\\"n])*"(,[a-z]+="([^"\\]|\\[\\"n])*")*\})? [-+]?[0-9.eE+-]+$`)
)

// TestMetrics: the status as gauges, in the format that Prometheus reads.
func TestMetrics(t *testing.T) {
	num := func(x float64) *float64 { return &x }
	s := Status{
		Run: "abc", Peer: "p0", Generation: 3, Step: 550, Steps: 2000, Loss: num(3.5), HeldOut: num(3.75), TokensPerS: 12000, ETAS: 600, Waiting: "for messages", Checkpoint: Checkpoint{Step: 500},
		Roster: []Member{{Peer: "p0", Name: "desk", State: "active"}, {Peer: "p1", Name: "a \"lap\\top\"\n", State: "active"}, {Peer: "p2", State: MemberSilent}, {Peer: "p3", State: "gone"}},
		Replicas: []ReplicaStatus{
			{Replica: 0, Peer: "p0", Step: 600, Loss: 3.25, Made: 50, Of: 50, TokensPerS: 8000, State: ReplicaEnded},
			{Replica: 1, Peer: "p1", Step: 562, Loss: 3.375, Made: 12, Of: 50, TokensPerS: 4000, State: ReplicaComputes},
			{Replica: 2, Peer: "p2", Of: 50, State: ReplicaLeftOut},
		},
		Outer: &OuterStep{
			From: 500, To: 550, Bytes: 1 << 30, SentBytes: 1 << 28, BytesPerToken: 0.41, EveryStepBytesPerToken: 25, ExchangeS: 4.1, WaitedShare: 0.02, HiddenS: 1.5, Drift: num(0.08),
			Replicas: []OuterPart{
				{Replica: 0, Steps: 50, Norm: num(0.5), Cosine: num(0.75), RoundS: 200, WaitedS: 6},
				{Replica: 1, Steps: 50, Norm: num(4), Cosine: num(-0.125), RoundS: 200, WaitedS: 4.1, Far: "large"},
				{Replica: 2, Why: "it was silent"},
			},
		},
	}
	var b bytes.Buffer
	if err := WriteMetrics(&b, s); err != nil {
		t.Fatal(err)
	}
	const path = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%s: %v; got\n%s", path, err, b.Bytes())
	}
	var none bytes.Buffer
	if err := WriteMetrics(&none, Status{Replicas: make([]ReplicaStatus, plan.MaxLocalReplicas)}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String() + none.String()) {
		line = strings.TrimSuffix(line, "\n")
		if !helpLine.MatchString(line) && !typeLine.MatchString(line) && !sampleLine.MatchString(line) {
			t.Errorf("no line of the format: %q", line)
		}
	}
}
