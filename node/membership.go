package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"pnode/node/config"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/twofold"
)

const maxMembershipBytes = 1 << 20

// ErrNoRun says that a folder holds no run.
var ErrNoRun = errors.New("node: no run in this folder")

// membership keeps what a node needs to come back to its run: which run, the right to be in it,
// and where it last saw the others and was seen itself.
type membership struct {
	Run        plan.RunID `json:"run"`
	OwnerKey   []byte     `json:"owner_key"`
	Capability []byte     `json:"capability"`
	// Listen is the "host:port" that was asked for, empty for any; Last the one that this
	// node had, which it takes again so that the others find it.
	Listen string `json:"listen"`
	Last   string `json:"last,omitempty"`
	// Known are the others' addresses.
	Known []string `json:"known"`
	// Finished is the step that the run was finished at, 0 before: then there is nothing to
	// come back to.
	Finished plan.Step `json:"finished,omitempty"`
}

func loadMembership(dir string) (membership, error) {
	m, err := twofold.Read(dir, config.MembershipFile, maxMembershipBytes, parseMembership)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, fmt.Errorf("%w: %s; start a run with `pnode train`, or enter one with `pnode join INVITE`", ErrNoRun, dir)
	case errors.Is(err, twofold.ErrDamaged):
		return m, fmt.Errorf("node: %w; bring it back from a backup, or enter the run anew with `pnode join INVITE` and another folder for --dir", err)
	case err != nil:
		return m, fmt.Errorf("node: read the membership: %w", err)
	}
	return m, nil
}

// parseMembership finds damage in valid JSON too: the signatures do not hold then.
func parseMembership(data []byte) (m membership, err error) {
	if err := strict.Decode(data, &m); err != nil {
		return m, err
	}
	c, err := admission.DecodeCapability(m.Capability)
	if err != nil {
		return m, err
	}
	return m, c.Verify(admission.Run{ID: m.Run, OwnerKey: m.OwnerKey}, time.Time{}) // whether it has expired is for the start to tell
}

func (m membership) save(dir string) error {
	if err := saveJSON(dir, config.MembershipFile, m); err != nil {
		return fmt.Errorf("node: save the membership: %w", err)
	}
	return nil
}

// saveJSON keeps a value in a folder, in two copies.
func saveJSON(dir, name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return twofold.Write(dir, name, append(data, '\n'))
}
