package main

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// BenchmarkLocalNodes trains nano with its default step of 2048 tokens in real processes:
// alone, and as a pipeline of three node processes that share this machine's cores. It
// reports the time of a step and the tokens per second once the run is under way; one
// iteration is enough: -benchtime 1x.
func BenchmarkLocalNodes(b *testing.B) {
	const warm, steps = 10, 50
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				args := []string{
					"train", "--json", "--dir", b.TempDir(), "--data", "../..", "--steps", strconv.Itoa(steps),
					"--held-out-every", "1000", "--checkpoint-every", "1000", "--sample-bytes", "0",
				}
				if nodes > 1 {
					args = append(args, "--local", strconv.Itoa(nodes), "--replicas", "1")
				}
				p := start(b, args...)
				p.until(warm)
				begin := time.Now()
				p.until(steps)
				perStep := time.Since(begin) / (steps - warm)
				p.finish(0)
				b.ReportMetric(float64(perStep.Microseconds())/1000, "ms/step")
				b.ReportMetric(2048/perStep.Seconds(), "tokens/s")
			}
		})
	}
}
