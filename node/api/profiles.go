package api

import (
	"cmp"
	"slices"

	"pnode/planner/plan"
)

// Profiles say what plans know of machines: what each node measured of itself and of its lines, what plans count on of that, and what
// the steps of the current plan showed.
type Profiles struct {
	Devices []DeviceProfile `json:"devices"`
	Links   []LinkProfile   `json:"links"`
	// Rest counts what brief ones leave out.
	Rest *ProfilesRest `json:"rest,omitempty"`
}

// ProfilesRest counts the devices and lines that brief profiles leave out.
type ProfilesRest struct {
	Devices int `json:"devices"`
	Links   int `json:"links"`
}

// DeviceProfile is one device of a member that is not gone.
type DeviceProfile struct {
	Peer plan.PeerID `json:"peer"`
	// Node is what people call the member.
	Node string `json:"node"`
	plan.DeviceProfile
	// CountedPermille is which part of the claimed rates plans count on, in thousandths.
	CountedPermille int64 `json:"counted_permille"`
	// Layers are those that it computes in the current plan.
	Layers []plan.LayerRange `json:"layers,omitempty"`
	// PlannedMS is how long it computes in a step by its profile, MeasuredMS how long it does; 0 where no step says so.
	PlannedMS  float64 `json:"planned_ms,omitempty"`
	MeasuredMS float64 `json:"measured_ms,omitempty"`
}

// LinkProfile is one direction of a line between two members.
type LinkProfile struct {
	LinkStatus
	FromNode string `json:"from_node"`
	ToNode   string `json:"to_node"`
	// Used reports whether stages of the current plan that follow each other are at its ends.
	Used bool `json:"used"`
	// Estimated reports that nobody measured the line: BytesPerS and RTTMS are what plans assume of it.
	Estimated bool `json:"estimated,omitempty"`
}

// Brief returns profiles that fit on a screen or two: of more than 64 devices the slowest of the plan stay, and the slowest lines that it
// uses. Rest counts the others.
func (p Profiles) Brief() Profiles {
	if len(p.Devices) <= briefFrom {
		return p
	}
	var brief Profiles
	brief.Devices = slices.DeleteFunc(slices.Clone(p.Devices), func(d DeviceProfile) bool { return len(d.Layers) == 0 })
	brief.Links = slices.DeleteFunc(slices.Clone(p.Links), func(l LinkProfile) bool { return !l.Used })
	slices.SortStableFunc(brief.Devices, func(a, b DeviceProfile) int {
		return cmp.Compare(max(b.PlannedMS, b.MeasuredMS), max(a.PlannedMS, a.MeasuredMS))
	})
	slices.SortStableFunc(brief.Links, func(a, b LinkProfile) int { return cmp.Compare(a.BytesPerS, b.BytesPerS) })
	brief.Devices = brief.Devices[:min(len(brief.Devices), briefStages)]
	brief.Links = brief.Links[:min(len(brief.Links), briefStages)]
	brief.Rest = &ProfilesRest{len(p.Devices) - len(brief.Devices), len(p.Links) - len(brief.Links)}
	return brief
}
