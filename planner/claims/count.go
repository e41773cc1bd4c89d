package claims

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

const (
	// growth is how many times what a member has shown plans count on next, slowGrowth the same after its claim was
	// found too high.
	growth, slowGrowth = 8, 2
	// whole is all of a claim, in the parts that shares of claims are counted in.
	whole = 1_000_000_000
)

// Claim holds what a member says of its speed, and what is known of that.
type Claim struct {
	Peer    plan.PeerID
	Profile plan.Profile
	// Owner marks a node of the run's owners.
	Owner bool
	Shown plan.Shown
}

// Counted holds what plans count on of a member's claim.
type Counted struct {
	Claim
	// Profile has the claimed rates, or the same share of each.
	Profile plan.Profile
	// FLOPS is the sum of the devices' rates of products in Profile, ClaimedFLOPS that of the claim.
	FLOPS, ClaimedFLOPS int64
}

// Whole reports whether plans count on all of the claim.
func (c Counted) Whole() bool { return c.FLOPS == c.ClaimedFLOPS }

// Count returns by claim what plans of a run count on. The order of the claims does not matter.
func Count(run plan.StorageRule, claims []Claim) []Counted {
	b := provenIn(run, claims)
	out := make([]Counted, len(claims))
	for i, c := range claims {
		s := speedOf(run, c.Profile)
		share := b.share(c, s)
		profile := c.Profile
		if !c.Owner {
			profile = halved(profile, c.Shown.MemoryHalvings())
		}
		out[i] = Counted{Claim: c, Profile: scaled(profile, share), FLOPS: of(s.total, share), ClaimedFLOPS: s.total}
	}
	return out
}

// speed is a rate of products, in operations a second: of all devices of a member, and of its fastest.
type speed struct{ total, device int64 }

// speedOf returns a claimed speed, in the storages that the run may have.
func speedOf(run plan.StorageRule, p plan.Profile) (s speed) {
	for _, d := range p.Devices {
		if rate := products(run, d); d.Usable() {
			s.total, s.device = min(s.total+rate, plan.MaxDevices*plan.MaxFLOPS), max(s.device, rate)
		}
	}
	return s
}

// products returns a device's best rate of products in a storage that the run may have.
func products(run plan.StorageRule, d plan.DeviceProfile) int64 {
	best := int64(0)
	for _, s := range []model.Storage{model.StorageF32, model.StorageBF16, model.StorageF16} {
		if run.Allows(s) {
			best = max(best, d.Products(s))
		}
	}
	return min(cmp.Or(best, d.MatMulFLOPS), plan.MaxFLOPS) // as for float32 where nobody measured it
}

// provenIn returns the fastest that is proven in a run: owners' speeds, and what others have shown. Where nothing
// is, it returns the medians of the claims, so that one that claims too much gains nothing by it.
func provenIn(run plan.StorageRule, claims []Claim) (base speed) {
	var totals, devices []int64
	for _, c := range claims {
		s := speedOf(run, c.Profile)
		if s.total == 0 {
			continue
		}
		totals, devices = append(totals, s.total), append(devices, s.device)
		share := int64(whole)
		if !c.Owner {
			share = shareOf(c.Shown.FLOPS, s.total)
		}
		base.total, base.device = max(base.total, of(s.total, share)), max(base.device, of(s.device, share))
	}
	if base.total > 0 || len(totals) == 0 {
		return base
	}
	slices.Sort(totals)
	slices.Sort(devices)
	return speed{totals[(len(totals)-1)/2], devices[(len(devices)-1)/2]}
}

// share returns how much of a claim plans count on when base is proven, in parts of whole.
func (base speed) share(c Claim, claimed speed) int64 {
	if c.Owner || claimed.total == 0 {
		return whole
	}
	newcomers := min(shareOf(base.total, claimed.total), shareOf(base.device, claimed.device))
	switch shown := c.Shown.FLOPS; {
	case c.Shown.Lowered == 0:
		return max(newcomers, shareOf(times(shown, growth), claimed.total))
	case c.Shown.Held:
		return shareOf(times(shown, slowGrowth), claimed.total)
	default:
		return shareOf(shown, claimed.total)
	}
}

func times(flops, n int64) int64 { return min(flops, plan.MaxDevices*plan.MaxFLOPS/n) * n }

// shareOf returns part of all, in parts of whole: at most all, and more than nothing of anything.
func shareOf(part, all int64) int64 {
	switch {
	case part >= all:
		return whole
	case part <= 0:
		return 0
	}
	return max(1, mulDiv(part, whole, all))
}

// of returns a share of a rate, which is more than nothing of anything.
func of(rate, share int64) int64 {
	if rate <= 0 || share == 0 {
		return 0
	}
	return max(1, mulDiv(rate, share, whole))
}

// mulDiv returns a*b/c for b <= c or a <= c, rounded down.
func mulDiv(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	n, _ := bits.Div64(high, low, uint64(c))
	return int64(n)
}

// halved returns a profile with the memory of its devices, and the node's for them, halved so often.
func halved(p plan.Profile, times int) plan.Profile {
	if times <= 0 {
		return p
	}
	p.Devices = slices.Clone(p.Devices)
	for i := range p.Devices {
		p.Devices[i].MemoryFreeBytes >>= times
		p.Devices[i].HostFreeBytes >>= times
	}
	return p
}

// scaled returns a profile with a share of the rates of its devices. Memory, copies and links stay.
func scaled(p plan.Profile, share int64) plan.Profile {
	if share == whole {
		return p
	}
	p.Devices = slices.Clone(p.Devices)
	for i := range p.Devices {
		d := &p.Devices[i]
		for _, rate := range []*int64{&d.MatMulFLOPS, &d.AttentionFLOPS, &d.MatMulBF16FLOPS, &d.MatMulF16FLOPS, &d.MemoryBytesPerS} {
			*rate = of(*rate, share)
		}
		d.CallNanos = min(d.CallNanos*whole/max(share, 1), plan.MaxCallNanos)
		*d = d.Stretched(whole, share)
	}
	return p
}

// Text says for people what is counted on of a claim; empty where that is all of it.
func (c Counted) Text() string {
	var parts []string
	switch {
	case c.Whole():
	case c.Shown.Lowered > 0:
		parts = append(parts, fmt.Sprintf("counts with %s of the %s that it claims: steps have shown no more", plan.Speed(c.FLOPS), plan.Speed(c.ClaimedFLOPS)))
	default:
		parts = append(parts, fmt.Sprintf("counts with %s of the %s that it claims until steps show more", plan.Speed(c.FLOPS), plan.Speed(c.ClaimedFLOPS)))
	}
	if n := c.Shown.MemoryHalvings(); n > 0 && !c.Owner {
		parts = append(parts, fmt.Sprintf("counts with little of its memory, halved %s: it left %d plans in a row before their first checkpoint", plan.Count(n, "time"), c.Shown.Broke))
	}
	return strings.Join(parts, ", ")
}
