package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"pnode/kernels"
)

// Bounds of what a member says of itself. Each lies well above any machine there is, so that nothing true is
// refused, and so far below 2^63 that sums over the devices of 1,000 members, as many as a run has, stay exact. Of FLOPS and
// links only one member's may be added up.
const (
	MaxDevices = 16
	MaxLinks   = 256
	// MaxFLOPS bounds the rates of a device, in operations per second: a B200 reaches 2.5e15 in BF16.
	MaxFLOPS = 10_000_000_000_000_000
	// MaxMemoryBytesPerS bounds the bandwidth of a device's memory and of copies to it: a B200 has 8e12.
	MaxMemoryBytesPerS = 500_000_000_000_000
	// MaxMemoryBytes bounds the memory of a device or host, MaxDiskBytes a disk's free space.
	MaxMemoryBytes = 1 << 48
	MaxDiskBytes   = 1 << 50
	// MaxLinkBytesPerS and MaxLinkNanos bound what a probe of a link can find.
	MaxLinkBytesPerS = 1 << 50
	MaxLinkNanos     = 60_000_000_000
	MaxCallNanos     = 10_000_000
	// MaxWorkNanos bounds the time of any call whose size is measured: 18 minutes.
	MaxWorkNanos = 1 << 40

	maxDeviceName = 128 // bytes of the name of a device or the ID of a link's peer
	maxModelText  = 512 // bytes of a device's model
	maxKindText   = 64  // bytes of a processor's kind
)

// ErrBadProfile is wrapped by the errors of Profile.Validate.
var ErrBadProfile = errors.New("planner: bad profile")

// figure is one number of a profile with the most that it may be.
type figure struct {
	name  string // as in JSON
	value *int64
	most  int64
}

func (d *DeviceProfile) figures() []figure {
	return []figure{
		{"matmul_flops", &d.MatMulFLOPS, MaxFLOPS},
		{"attention_flops", &d.AttentionFLOPS, MaxFLOPS},
		{"matmul_bf16_flops", &d.MatMulBF16FLOPS, MaxFLOPS},
		{"matmul_f16_flops", &d.MatMulF16FLOPS, MaxFLOPS},
		{"memory_bytes_per_s", &d.MemoryBytesPerS, MaxMemoryBytesPerS},
		{"call_nanos", &d.CallNanos, MaxCallNanos},
		{"memory_free_bytes", &d.MemoryFreeBytes, MaxMemoryBytes},
		{"copy_bytes_per_s", &d.CopyBytesPerS, MaxMemoryBytesPerS},
		{"host_free_bytes", &d.HostFreeBytes, MaxMemoryBytes},
	}
}

func (l *LinkProfile) figures() []figure {
	return []figure{{"rtt_nanos", &l.RTTNanos, MaxLinkNanos}, {"jitter_nanos", &l.JitterNanos, MaxLinkNanos}, {"bytes_per_s", &l.BytesPerS, MaxLinkBytesPerS}}
}

func (p *Profile) figures() []figure {
	return []figure{{"disk_free_bytes", &p.DiskFreeBytes, MaxDiskBytes}}
}

// Validate returns what in the profile of peer self cannot be, with the field, its value and what is accepted;
// nil for nothing. Every node gives the same answer. Errors wrap ErrBadProfile.
func (p Profile) Validate(self PeerID) error {
	if err := p.check(self); err != nil {
		return fmt.Errorf("%w: %w", ErrBadProfile, err)
	}
	return nil
}

func (p Profile) check(self PeerID) error {
	if len(p.Devices) > MaxDevices || len(p.Links) > MaxLinks {
		return fmt.Errorf("%d devices and %d links, at most %d and %d are accepted", len(p.Devices), len(p.Links), MaxDevices, MaxLinks)
	}
	if err := within(p.figures()); err != nil {
		return err
	}
	devices, peers := map[string]bool{}, map[PeerID]bool{}
	for i := range p.Devices {
		d := p.Devices[i] // whose figures are pointed to
		switch {
		case d.Name == "" || !Printable(d.Name, maxDeviceName):
			return fmt.Errorf("devices[%d].name is %.40q: want 1 to %d bytes of printable text", i, d.Name, maxDeviceName)
		case devices[d.Name]:
			return fmt.Errorf("devices[%d].name is %.40q, as another device's: want a name of its own for each", i, d.Name)
		case !Printable(d.Model, maxModelText):
			return fmt.Errorf("devices[%d].model is %.40q: want at most %d bytes of printable text", i, d.Model, maxModelText)
		case !Printable(d.Kind, maxKindText):
			return fmt.Errorf("devices[%d].kind is %.40q: want at most %d bytes of printable text", i, d.Kind, maxKindText)
		}
		if err := within(d.figures()); err != nil {
			return fmt.Errorf("devices[%d].%w", i, err)
		}
		if err := d.checkTimes(); err != nil {
			return fmt.Errorf("devices[%d].%w", i, err)
		}
		devices[d.Name] = true
	}
	for i := range p.Links {
		l := p.Links[i]
		switch {
		case l.Peer == "" || !Printable(string(l.Peer), maxDeviceName):
			return fmt.Errorf("links[%d].peer is %.40q: want 1 to %d bytes of printable text", i, l.Peer, maxDeviceName)
		case l.Peer == self:
			return fmt.Errorf("links[%d].peer is the profile's own peer: want a link to another", i)
		case !l.Transport.Valid():
			return fmt.Errorf("links[%d].transport is %.40q: want one of %v", i, string(l.Transport), Transports)
		case peers[l.Peer]:
			return fmt.Errorf("links[%d].peer is %.40q, as another link's: want one link to each peer", i, l.Peer)
		}
		if err := within(l.figures()); err != nil {
			return fmt.Errorf("links[%d].%w", i, err)
		}
		peers[l.Peer] = true
	}
	return nil
}

// workTimes are the times of a work in a type, which JSON has under a name.
type workTimes struct {
	name  string
	work  kernels.Work
	times *kernels.SizeTimes
}

// allTimes returns the times of each work in each type.
func (d *DeviceProfile) allTimes() []workTimes {
	const types, works = 3, int(kernels.WorkCopy-kernels.WorkProducts) + 1
	all := make([]workTimes, 0, types*works)
	for _, of := range [types]struct {
		name  string
		times *kernels.WorkTimes
	}{{"times", &d.Times}, {"times_bf16", &d.TimesBF16}, {"times_f16", &d.TimesF16}} {
		for w := kernels.WorkProducts; w <= kernels.WorkCopy; w++ {
			all = append(all, workTimes{of.name, w, of.times.Of(w)})
		}
	}
	return all
}

// checkTimes returns an error for times that cannot be: a call that takes less time than a smaller one, or none at all.
func (d *DeviceProfile) checkTimes() error {
	for _, of := range d.allTimes() {
		t := of.times
		if *t != (kernels.SizeTimes{}) && (t[0] < 1 || !slices.IsSorted(t[:]) || t[len(t)-1] > MaxWorkNanos) {
			return fmt.Errorf("%s of %v are %v: want 1 to %d, none less than the one before it", of.name, of.work, *t, int64(MaxWorkNanos))
		}
	}
	return nil
}

func within(all []figure) error {
	for _, f := range all {
		if *f.value < 0 || *f.value > f.most {
			return fmt.Errorf("%s is %d: want 0 to %d", f.name, *f.value, f.most)
		}
	}
	return nil
}

// Clamped returns the profile with each number within its bounds, and texts without what cannot be printed.
// Whoever measures calls it: a clock that stood still or a file system that reports no limit is no reason to
// keep an honest machine out.
func (p Profile) Clamped() Profile {
	clamp := func(all []figure) {
		for _, f := range all {
			*f.value = min(max(*f.value, 0), f.most)
		}
	}
	p.Devices, p.Links = slices.Clone(p.Devices), slices.Clone(p.Links)
	clamp(p.figures())
	for i := range p.Devices {
		d := &p.Devices[i]
		d.Model, d.Kind = Clip(d.Model, maxModelText), Clip(d.Kind, maxKindText)
		clamp(d.figures())
		for _, of := range d.allTimes() {
			t := of.times
			least := int64(0)
			for k, nanos := range t {
				if *t == (kernels.SizeTimes{}) {
					break
				}
				least = min(max(nanos, least, 1), MaxWorkNanos)
				t[k] = least
			}
		}
	}
	for i := range p.Links {
		clamp(p.Links[i].figures())
	}
	return p
}

// Clip returns text as Printable accepts it: line ends and tabs as spaces, without other characters that it refuses, and
// cut at the end of a character. Whatever others write passes through it before people read it.
func Clip(text string, most int) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || r == '\t' {
			r = ' '
		}
		if r == utf8.RuneError || hidden(r) {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > most {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Printable reports whether text is valid UTF-8 of at most most bytes, without control characters, line ends and
// characters that turn or hide what follows. The list is fixed: with the tables of a Go release two nodes could
// disagree.
func Printable(text string, most int) bool {
	return len(text) <= most && utf8.ValidString(text) && !strings.ContainsFunc(text, hidden)
}

func hidden(r rune) bool {
	switch {
	case r < 0x20, 0x7f <= r && r < 0xa0, r == 0x00ad, r == 0x061c, r == 0xfeff:
	case 0x200b <= r && r <= 0x200f, 0x2028 <= r && r <= 0x202e, 0x2060 <= r && r <= 0x206f, 0xfff9 <= r && r <= 0xfffb:
	case 0xe0000 <= r && r <= 0xe007f:
	default:
		return false
	}
	return true
}

// Usable reports whether a plan can give the device a stage: it has speed and free memory.
func (d DeviceProfile) Usable() bool {
	return min(d.MatMulFLOPS, d.MemoryBytesPerS, d.MemoryFreeBytes) > 0
}

// Shown holds what steps have shown of a member's speed. The zero value is nothing yet.
type Shown struct {
	// FLOPS is the sum of the rates of products that its devices had at least, in operations a second.
	FLOPS int64 `json:"flops,omitempty"`
	// Generation is the plan whose steps showed it. Held reports that they took the time that was predicted, or that
	// it is believed again after it had no part for a while.
	Generation Generation `json:"generation,omitempty"`
	Held       bool       `json:"held,omitempty"`
	// Lowered counts the plans whose steps showed less than they had counted on, Idle the checkpoints in a row without
	// the member since.
	Lowered int `json:"lowered,omitempty"`
	Idle    int `json:"idle,omitempty"`
	// Broke counts the plans in a row that ended before their first checkpoint because the member went, the last of
	// them BrokeIn: it may have claimed more memory than it has. Waited counts the checkpoints without it since.
	Broke   int        `json:"broke,omitempty"`
	BrokeIn Generation `json:"broke_in,omitempty"`
	Waited  int        `json:"waited,omitempty"`
}

// MemoryHalvings returns how often plans halve the memory that the member claims: 1, 4, 9 times and so on. One broken
// plan is forgiven.
func (s Shown) MemoryHalvings() int {
	n := max(0, s.Broke-1)
	return n * n
}

// Breaking returns what is shown once the member went before the first checkpoint of plan g.
func (s Shown) Breaking(g Generation) Shown {
	if g > s.BrokeIn {
		s.Broke, s.BrokeIn, s.Waited = min(s.Broke+1, maxBroke), g, 0
	}
	return s
}

// Saved returns what is shown after a checkpoint, with a part in it or without.
func (s Shown) Saved(took bool) Shown { return s.savedMemory(took).savedSpeed(took) }

// savedMemory forgives broken plans: with a part in a checkpoint nothing is held against the member any more, without one
// it gets another chance after some of them, twice as many each time.
func (s Shown) savedMemory(took bool) Shown {
	if s.Broke == 0 {
		return s
	}
	if s.Waited++; took || s.Waited >= 1<<s.Broke {
		s.Broke, s.Waited = s.Broke-1, 0
	}
	if took {
		s.Broke = 0
	}
	return s
}

// savedSpeed forgives slow steps where the member has no part any more, in which it could show that it is faster: after
// some checkpoints plans count on more than it has shown, twice as many each time that it was lowered.
func (s Shown) savedSpeed(took bool) Shown {
	switch {
	case s.Lowered == 0:
		return s
	case took:
		s.Idle = 0
		return s
	}
	if s.Idle++; s.Idle >= 1<<min(s.Lowered, maxIdle) {
		s.Lowered, s.Idle, s.Held = s.Lowered-1, 0, true
	}
	return s
}

// After returns what is shown once steps of a plan have shown so much; ok is false where that changes nothing. In
// one plan a member can hold once, and be lowered once.
func (s Shown) After(g Generation, flops int64, held bool) (next Shown, ok bool) {
	if g < s.Generation || g == s.Generation && (held || !s.Held) {
		return s, false
	}
	s.FLOPS, s.Generation, s.Held = flops, g, held
	if !held {
		s.Lowered, s.Idle = min(s.Lowered+1, maxLowered), 0
	}
	return s, true
}

// Bounds of what is counted in Shown; maxIdle, as a power of 2, of the checkpoints that a lowered member waits for.
const maxLowered, maxBroke, maxIdle = 16, 8, 4
