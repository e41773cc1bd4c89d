package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"pnode/node/config"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/twofold"
)

const (
	maxMembershipBytes = 1 << 20
	// maxKnownBytes bounds the addresses in it, each with what JSON puts around it.
	maxKnownBytes  = maxMembershipBytes / 2
	aroundJSONText = 8
)

// ErrNoRun says that a folder holds no run.
var ErrNoRun = errors.New("node: no run in this folder")

// membership keeps what a node needs to come back to its run: which run, the right to be in it,
// and where it last saw the others and was seen itself.
type membership struct {
	Run        plan.RunID `json:"run"`
	OwnerKey   []byte     `json:"owner_key"`
	Capability []byte     `json:"capability"`
	// Name is what this machine was called in the run; it keeps the name until another one is given.
	Name string `json:"name,omitempty"`
	// Listen is the "host:port" that was asked for, empty for any; Last the one that this
	// node had, which it takes again so that the others find it.
	Listen string `json:"listen"`
	Last   string `json:"last,omitempty"`
	// Announce is the text of an announce.List that was asked for.
	Announce string `json:"announce,omitempty"`
	// Relay is the text of a config.RelayRate that was asked for.
	Relay string `json:"relay,omitempty"`
	// KeepWhole is config.Config's; empty stands for auto.
	KeepWhole string `json:"keep_whole,omitempty"`
	// Known are the others' addresses.
	Known []string `json:"known"`
	// Admitted are the peers that belonged to the run: until the log has come, nobody else is let in.
	Admitted []plan.PeerID `json:"admitted,omitempty"`
	// Owners are those of them that were its owners.
	Owners []plan.PeerID `json:"owners,omitempty"`
	// OwnerNames are what their machines were called, in the same order, for people.
	OwnerNames []string `json:"owner_names,omitempty"`
	// Finished is the step that the run was finished at, 0 before: then there is nothing to
	// come back to.
	Finished plan.Step `json:"finished,omitempty"`
	// Extends is the later end that the run is to get, 0 for none.
	Extends plan.Step `json:"extends,omitempty"`
	// Unsettled: no owner was known to have the finished model when this node ended.
	Unsettled bool `json:"unsettled,omitempty"`
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

// checkEnd refuses a new end of a folder's run that is before the one which the folder knows of; 0 is none.
func checkEnd(dir string, end plan.Step) error {
	run, err := LoadRun(dir)
	if err != nil || end == 0 || end >= run.Train.Steps {
		return nil // a damaged file is another matter
	}
	return fmt.Errorf("%w: --steps is %d: the run ends at step %d, and its end can only be moved to a later one; Ctrl-C stops it with a checkpoint", config.ErrInvalid, end, run.Train.Steps)
}

// Reopen has the node in a folder come back to its run although that was finished: its end is moved to a later step.
// The error wraps config.ErrInvalid for an earlier one.
func Reopen(dir string, end plan.Step) error {
	if err := checkEnd(dir, end); err != nil {
		return err
	}
	m, err := loadMembership(dir)
	if err != nil || m.Finished == 0 || m.Finished >= end {
		return err
	}
	m.Finished, m.Extends = 0, end
	return m.save(dir)
}

// parseMembership finds damage in valid JSON too: the signatures do not hold then. It leaves out addresses that the swarm
// would not read: others told of them, and the node starts without them.
func parseMembership(data []byte) (m membership, err error) {
	if err := strict.Decode(data, &m); err != nil {
		return m, err
	}
	if m.Name != "" && !plan.ValidName(m.Name) {
		return m, fmt.Errorf("name %q: no machine is called so", m.Name)
	}
	if len(m.OwnerNames) != len(m.Owners) {
		m.OwnerNames = nil
	}
	for i, p := range m.Owners[:len(m.OwnerNames)] { // two machines of one name have the ends of their peer IDs, too
		if name := m.OwnerNames[i]; !plan.ValidName(strings.TrimSuffix(name, " "+p.Short())) {
			m.OwnerNames[i] = p.Short()
		}
	}
	m.Known = slices.DeleteFunc(m.Known, func(a string) bool {
		_, err := admission.ParseAddrs([]string{a})
		return err != nil
	})
	c, err := admission.DecodeCapability(m.Capability)
	if err != nil {
		return m, err
	}
	return m, c.Verify(admission.Run{ID: m.Run, OwnerKey: m.OwnerKey}, time.Time{}) // whether it has expired is for the start to tell
}

// owner reports whether this node is an owner's, whatever its machine is called, and returns the names of the other owners' machines.
func (m membership) owner() (own bool, others []string) {
	c, err := admission.DecodeCapability(m.Capability)
	for i, name := range m.OwnerNames {
		if m.Owners[i] != c.Peer {
			others = append(others, name)
		}
	}
	return err == nil && c.Role == admission.RoleOwner, others
}

// nameOf returns what a machine was called, as far as this one has kept that: its own name and those of owners. Others have the ends of their peer IDs.
func (m membership) nameOf(p plan.PeerID) string {
	if i := slices.Index(m.Owners, p); i >= 0 && i < len(m.OwnerNames) {
		return m.OwnerNames[i]
	}
	if c, err := admission.DecodeCapability(m.Capability); err == nil && c.Peer == p && m.Name != "" {
		return m.Name
	}
	return p.Short()
}

// save leaves out the addresses of peers that do not belong to the run, and those for which there is no room.
func (m membership) save(dir string) error {
	m.Known = knownOf(m.Known, m.Admitted)
	if err := saveJSON(dir, config.MembershipFile, m); err != nil {
		return fmt.Errorf("node: save the membership: %w", err)
	}
	return nil
}

// knownOf returns the addresses of admitted peers, of all when none is known to be admitted, in the order given. Of what is
// too much every peer loses its last addresses first.
func knownOf(addrs []string, admitted []plan.PeerID) []string {
	type ranked struct{ at, rank int }
	belongs, of := map[string]bool{}, map[string]int{}
	for _, p := range admitted {
		belongs[string(p)] = true
	}
	var all []ranked
	for at, a := range addrs {
		p := a[strings.LastIndexByte(a, '/')+1:]
		if len(admitted) == 0 || belongs[p] {
			all = append(all, ranked{at, of[p]})
			of[p]++
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	room := maxKnownBytes
	all = slices.DeleteFunc(all, func(r ranked) bool {
		room -= len(addrs[r.at]) + aroundJSONText
		return room < 0
	})
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(a.at, b.at) })
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = addrs[r.at]
	}
	return out
}

// saveJSON keeps a value in a folder, in two copies.
func saveJSON(dir, name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return twofold.Write(dir, name, append(data, '\n'))
}

const (
	// epochFile holds the process epoch of a node's newest start.
	epochFile     = "epoch"
	maxEpochBytes = 32
	// epochRoom is the least distance of two process epochs: a process numbers its messages and proposals from its epoch
	// on, and sends fewer.
	epochRoom = 1 << 32
	// lastEpoch bounds process epochs: numbers up to 2^53 are exact in every JSON reader.
	lastEpoch = 1<<53 - 1
)

// nextEpoch returns the process epoch of a node that starts at time now, and keeps it in the node's folder. It is the
// clock, in microseconds, or more where the clock has been set back since an earlier start: the others take older numbers for
// repeated messages.
func nextEpoch(dir string, now time.Time) (uint64, error) {
	last, err := twofold.Read(dir, epochFile, maxEpochBytes, func(data []byte) (uint64, error) {
		return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 53)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, twofold.ErrDamaged) { // the clock is mostly right
		return 0, fmt.Errorf("node: read the number of the last start: %w", err)
	}
	epoch := uint64(max(now.UnixMicro(), 1))
	if err == nil {
		epoch = max(epoch, last+epochRoom)
	}
	if epoch > lastEpoch {
		return 0, fmt.Errorf("node: the clock of this machine says %s: set it right, delete the files %s and %s.copy in %s, and start the node again",
			now.Format(time.DateOnly), epochFile, epochFile, dir)
	}
	if err := twofold.Write(dir, epochFile, []byte(strconv.FormatUint(epoch, 10)+"\n")); err != nil {
		return 0, fmt.Errorf("node: keep the number of this start: %w", err)
	}
	return epoch, nil
}
