package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"pnode/checkpoint"
	"pnode/node/config"
	"pnode/planner"
)

const maxMembershipBytes = 1 << 20

// ErrNoRun says that a folder holds no run.
var ErrNoRun = errors.New("node: no run in this folder")

// membership is what a node must not forget to come back to its run: which run, the right
// to be in it, and where it last saw the others and was seen itself.
type membership struct {
	Run        planner.RunID `json:"run"`
	OwnerKey   []byte        `json:"owner_key"`
	Capability []byte        `json:"capability"`
	// Listen is the "host:port" that was asked for, empty for any; Last the one that this
	// node had, which it takes again so that the others find it.
	Listen string `json:"listen"`
	Last   string `json:"last,omitempty"`
	// Known are the others' addresses.
	Known []string `json:"known"`
	// Finished is the step that the run was finished at, 0 before: then there is nothing to
	// come back to.
	Finished planner.Step `json:"finished,omitempty"`
}

func loadMembership(dir string) (membership, error) {
	var m membership
	path := filepath.Join(dir, config.MembershipFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("%w: %s; start a run with `pnode train`, or enter one with `pnode join INVITE`", ErrNoRun, dir)
	}
	if err != nil {
		return m, fmt.Errorf("node: read the membership: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMembershipBytes)) // a cut file is no JSON
	if err == nil {
		err = strictJSON(data, &m)
	}
	if err != nil {
		return m, fmt.Errorf("node: %s is damaged: %w; join the run again from a fresh folder", path, err)
	}
	return m, nil
}

// OpenStore opens the store of a node that does not run, to look at its checkpoints.
func OpenStore(dir string, log *slog.Logger) (*checkpoint.Store, error) {
	if _, err := loadMembership(dir); err != nil {
		return nil, err
	}
	o := opening{dir: dir, returning: true}
	err := o.prepare(log)
	return o.store, err
}

func (m membership) save(dir string) error {
	if err := replaceJSON(dir, config.MembershipFile, m); err != nil {
		return fmt.Errorf("node: save the membership: %w", err)
	}
	return nil
}

// replaceJSON replaces a file of a folder in one step.
func replaceJSON(dir, name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, name+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
