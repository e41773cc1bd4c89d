package ingest

import (
	"fmt"

	"pnode/node/config"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/source"
	"pnode/planner/plan"
)

// manyPasses is how often a model may see the same text until more steps surely teach it next to nothing: repeated tokens count for less each
// time, and for nothing after some 40 (Muennighoff et al. 2023, arXiv 2305.16264, section 6).
const manyPasses = 50

// Repeats warns of a run that goes through its text more than manyPasses times; it is empty for others.
func Repeats(spec plan.RunSpec) string { return repeats(spec, "") }

func repeats(spec plan.RunSpec, atLeast string) string {
	width := int64(1)
	if t := spec.Data.Tokens; t != nil {
		width = int64(max(t.WidthBytes, 1))
	}
	own := float64(spec.Data.SizeBytes/width) * float64(1000-spec.Data.HeldOutPermille) / 1000
	step := float64(spec.Train.Micros) * float64(spec.Train.MicroBatch) * float64(spec.Model.Context)
	trained := float64(spec.Train.Steps) * step
	if own <= 0 || trained <= manyPasses*own {
		return ""
	}
	return fmt.Sprintf("warning: the run goes through this text %s%s times, and the model will learn it by heart; past %d times it learns next to nothing. Give it more text with --data, or --steps %d",
		atLeast, times(trained/own), manyPasses, max(1, int(manyPasses*own/step)))
}

// times prints how often: large figures have no tenths.
func times(n float64) string {
	if n < 100 {
		return fmt.Sprintf("%.1f", n)
	}
	return plan.Number(int64(n + 0.5))
}

// PlannedRepeats is Repeats for a run whose text is not there yet, as far as the data is here and can be measured without reading it all:
// token shards, and files that are not packed. A token is a byte of these or more.
func PlannedRepeats(c config.Config, spec plan.RunSpec) string {
	var err error
	if spec.Data, err = measure(c); err != nil {
		return "" // the data may be on another machine, and no plan depends on it
	}
	if limit := int64(c.DataLimit); limit > 0 {
		spec.Data.SizeBytes = min(spec.Data.SizeBytes, limit)
	}
	spec.Data.HeldOutPermille = heldOutPermille
	return repeats(spec, "at least ")
}

// measure returns the most that the data can be, or nothing if that cannot be told.
func measure(c config.Config) (d plan.DataSpec, err error) {
	for _, path := range c.Data {
		if shard.IsFolder(path) {
			f, err := shard.Open(path)
			if err != nil {
				return d, err
			}
			tokens := f.Manifest.Spec()
			d.SizeBytes += f.Bytes()
			d.Tokens = &tokens
		}
	}
	if d.Tokens != nil {
		return d, nil // nothing else goes with them
	}
	found, _, err := source.Find(c.Data)
	if err != nil || len(c.Data) == 0 {
		return d, err
	}
	for _, f := range found {
		most, err := source.MostBytes(f, source.Options{Column: c.Column})
		if err != nil {
			return d, err
		}
		if most < 0 {
			return plan.DataSpec{}, nil
		}
		d.SizeBytes += most + 1 // what separates it from the next
	}
	return d, nil
}
