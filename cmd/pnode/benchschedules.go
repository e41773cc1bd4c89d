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
		Long: `Measure schedules on emulated devices and links, with the workers of real runs and real QUIC, and
compare them with the simulator's predictions. The elastic schedule runs with memory for as many
activations as 1F1B keeps, for twice as many, and without a limit. 1F1B, GPipe, depth-first and
breadth-first interleaving run in the same measurement. "elastic groups" is interleaving in the
groups that the simulator prefers over the elastic schedule.

A stage takes --stage-time for a micro-batch; nothing is computed. The first steps, in which the
connections find their speed, do not count. Other work on the machine makes the figures worse:
"go test ./node/bench -run Grid -v -grid full" measures the same in virtual time.`,
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
