package main

import (
	"fmt"
	"os"

	"pnode/node/dataset/files"
	"pnode/pipeline/schedule/study"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
)

// measuredSchedule prints a step of a run's traces next to its prediction. Step 0 takes the newest one.
func (e environment) measuredSchedule(names []string, step int, svg string) error {
	t, err := readTraces(names)
	if err != nil {
		return err
	}
	keys := t.Keys()
	if len(keys) == 0 {
		return fmt.Errorf("the trace has no spans")
	}
	key, found := keys[len(keys)-1], step == 0
	for _, k := range keys {
		if k.Step == plan.Step(step) {
			key, found = k, true // the newest generation that took it
		}
	}
	if !found {
		return fmt.Errorf("the trace has no step %d: want %d to %d", step, keys[0].Step, keys[len(keys)-1].Step)
	}
	line := t.Timeline(key)
	workers := make([]string, len(line.Workers))
	for w := range workers {
		workers[w] = t.Names[w]
	}
	m := study.Measure(fmt.Sprintf("step %d of generation %d", key.Step, key.Generation), workers, t.Segments(key), line)
	if svg != "" {
		if err := writePicture(svg, m); err != nil {
			return err
		}
	}
	return m.Text(e.stdout)
}

// readTraces returns the traces of one or several nodes as one.
func readTraces(names []string) (trace.Trace, error) {
	var all []trace.Trace
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return trace.Trace{}, files.Explain(err)
		}
		t, err := trace.Read(f)
		f.Close()
		if err != nil {
			return trace.Trace{}, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, t)
	}
	return trace.Merge(all...), nil
}
