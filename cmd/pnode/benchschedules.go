package main

import (
	"context"

	"github.com/spf13/cobra"

	"pnode/node/bench"
)

func (e environment) benchSchedulesCommand() *cobra.Command {
	var o bench.ScheduleOptions
	c := &cobra.Command{
		Use:   "schedules",
		Short: "Pipeline schedules on emulated devices and slow links",
		Long: `Measure how long schedules take on emulated devices behind emulated links, with the workers
of real runs and real QUIC, beside what the simulator predicts: the elastic schedule with
memory for as many activations as 1F1B keeps, for twice as many and for any number, and
plain 1F1B, GPipe, depth-first and breadth-first interleaving in the same run. "elastic
groups" is interleaving in the groups that the simulator chose where they beat the elastic
schedule on the whole step.

A stage takes --stage-time for a micro-batch; nothing is computed. Steps of enough
micro-batches for a pipeline to get under way are measured after some that let the
connections find their speed. The figures of a machine that does something else meanwhile
are worse than the schedules are; "go test ./node/bench -run Grid -v -grid full" measures
the same in virtual time, where nothing but the emulated devices and links takes any.`,
		Example: `  pnode bench schedules                         4 stages, 100 Mbit/s, 10 and 40 ms
  pnode bench schedules --full                  4 and 8 stages, 20 kinds of links: hours
  pnode bench schedules --stages 8 --mbit 50 --latency 150ms --json`,
	}
	f := e.measures(c, func(ctx context.Context, progress func(string)) (report, error) {
		o.Progress = progress
		return bench.Schedules(ctx, o)
	})
	f.BoolVar(&o.Full, "full", false, "the whole grid: 4 and 8 stages, 10 to 1000 Mbit/s, 1 to 150 ms")
	f.IntSliceVar(&o.Stages, "stages", nil, "`NUMBERS` of stages (default 4)")
	f.IntSliceVar(&o.Mbits, "mbit", nil, "`RATES` of each link and direction in Mbit/s (default 100)")
	f.DurationSliceVar(&o.Latencies, "latency", nil, "one-way `TIMES` of the links (default 10ms,40ms)")
	f.DurationVar(&o.StageTime, "stage-time", 0, "of one micro-batch on one stage (default 40ms)")
	return c
}
