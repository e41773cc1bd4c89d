package node

import (
	"errors"
	"fmt"
	"io/fs"

	"pnode/node/dataset"
	"pnode/node/ingest"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/twofold"
)

const (
	// runFile is in a node's folder from its first arrival on: the run's specification, for
	// those who look at the folder. The node itself goes by the log.
	runFile = "run.json"
	// maxRunBytes is well over what the log takes, indented.
	maxRunBytes = 16 << 20
)

func saveRun(dir string, run plan.RunSpec) error {
	if err := saveJSON(dir, runFile, run); err != nil {
		return fmt.Errorf("node: save the run's specification: %w", err)
	}
	return nil
}

// LoadRun reads the specification of the run that a folder belongs to, whether its node
// runs or not. The error wraps ErrNoRun when no node has come so far there.
func LoadRun(dir string) (plan.RunSpec, error) {
	run, err := twofold.Read(dir, runFile, maxRunBytes, func(data []byte) (run plan.RunSpec, err error) {
		err = strict.Decode(data, &run)
		return run, err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return run, fmt.Errorf("%w: %s has no %s: it is there once a node has begun to train", ErrNoRun, dir, runFile)
	case errors.Is(err, twofold.ErrDamaged):
		return run, fmt.Errorf("node: %w; start the node once to have it written again", err)
	case err != nil:
		return run, fmt.Errorf("node: read the run's specification: %w", err)
	}
	return run, nil
}

// OpenLedger tells which samples the steps of the run of a folder train on. It needs none of
// the run's text.
func OpenLedger(dir string) (*dataset.Sampler, error) {
	run, err := LoadRun(dir)
	if err != nil {
		return nil, err
	}
	return ingest.NewSampler(run)
}
