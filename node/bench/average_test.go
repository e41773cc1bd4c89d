package bench

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"pnode/swarm/netlab"
)

// TestAveragesWithoutAPeer: two members of a run add a small gradient up, at the ends of lines of a rate alone, and of others.
func TestAveragesWithoutAPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("four processes in network namespaces")
	}
	o := AverageOptions{
		Sides: Sides{Rounds: 1, Python: "/nonexistent/python3"}, Megabytes: 1, Peers: []int{2}, Mbits: []int{1000},
		Latencies: []time.Duration{0, time.Millisecond}, Binary: os.Args[0],
	}
	r, err := Averages(t.Context(), o)
	if errors.Is(err, netlab.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 2 || r.NoPeer == "" {
		t.Fatalf("got %+v", r)
	}
	for _, c := range r.Results {
		if c.Seconds < c.Limit || c.First <= 0 || c.Transports == "" {
			t.Errorf("got %+v", c)
		}
	}
	checkText(t, r, "pip install torch", "/nonexistent/python3")
}

// TestAverageLimit: of two peers each sends half of the gradient and half of the sum.
func TestAverageLimit(t *testing.T) {
	for peers, want := range map[int]float64{2: 3.5635, 4: 5.3453} {
		c := AverageResult{Peers: peers, Bytes: 43_000_000, Mbit: 100}
		if got := c.limit(); math.Abs(got-want) > 1e-4 {
			t.Errorf("%d peers: %v s, want %v", peers, got, want)
		}
	}
}

func TestBadAverageOptions(t *testing.T) {
	for want, o := range map[string]AverageOptions{
		"--peers": {Peers: []int{1}}, "--loss": {Losses: []float64{100}}, "--mbit": {Mbits: []int{0}}, "--latency": {Latencies: []time.Duration{-1}},
	} {
		o.Rounds, o.Megabytes = 1, 1
		if _, err := Averages(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
