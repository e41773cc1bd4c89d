package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"pnode/node/dataset"
	"pnode/planner"
)

const (
	// runFile is in a node's folder from its first arrival on: the run's specification, for
	// those who look at the folder. The node itself goes by the log.
	runFile = "run.json"
	// maxRunBytes is well over what the log takes, indented.
	maxRunBytes = 16 << 20
)

func saveRun(dir string, run planner.RunSpec) error {
	if err := replaceJSON(dir, runFile, run); err != nil {
		return fmt.Errorf("node: save the run's specification: %w", err)
	}
	return nil
}

// LoadRun reads the specification of the run that a folder belongs to, whether its node
// runs or not. The error wraps ErrNoRun when no node has come so far there.
func LoadRun(dir string) (planner.RunSpec, error) {
	var run planner.RunSpec
	path := filepath.Join(dir, runFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return run, fmt.Errorf("%w: %s has no %s: it is there once a node has begun to train", ErrNoRun, dir, runFile)
	}
	if err != nil {
		return run, fmt.Errorf("node: read the run's specification: %w", err)
	}
	defer func() { _ = f.Close() }()                        // only read
	data, err := io.ReadAll(io.LimitReader(f, maxRunBytes)) // a cut file is no JSON
	if err == nil {
		err = strictJSON(data, &run)
	}
	if err != nil {
		return run, fmt.Errorf("node: %s is damaged: %w; start the node once to have it written again", path, err)
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
	return dataset.NewSampler(run.Data, window(run))
}
