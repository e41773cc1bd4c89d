package plan

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pnode/kernels"
)

func TestProfilesAreWithinBounds(t *testing.T) {
	card := DeviceProfile{
		Name: "cuda:0", Model: "NVIDIA B200 é", MatMulFLOPS: 8e13, AttentionFLOPS: 4e13, MatMulBF16FLOPS: 25e14, MatMulF16FLOPS: 25e14,
		MemoryBytesPerS: 8e12, MemoryFreeBytes: 192 << 30, CopyBytesPerS: 64e9, HostFreeBytes: 2 << 40,
	}
	good := func() Profile {
		return Profile{
			DiskFreeBytes: 30 << 40, Devices: []DeviceProfile{card, {Name: "cpu"}},
			Links: []LinkProfile{{Peer: "b", RTTNanos: 6e8, BytesPerS: 1e9, JitterNanos: 3}, {Peer: "c"}},
		}
	}
	if err := errors.Join(good().Validate("a"), Profile{}.Validate("a")); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Profile){
		"devices[1].name":             func(p *Profile) { p.Devices[1].Name = "cuda:0" },
		"devices[0].name":             func(p *Profile) { p.Devices[0].Name = "" },
		`devices[0].name is "a\nb"`:   func(p *Profile) { p.Devices[0].Name = "a\nb" },
		"devices[0].name is \"xxxx":   func(p *Profile) { p.Devices[0].Name = strings.Repeat("x", 129) },
		`devices[0].model is "\x1b[2`: func(p *Profile) { p.Devices[0].Model = "\x1b[2J" },
		`devices[0].model is "\xff"`:  func(p *Profile) { p.Devices[0].Model = "\xff" },
		`devices[0].model is "\u202e`: func(p *Profile) { p.Devices[0].Model = "\u202eUPG" },
		`devices[0].kind is "\x1b[2J`: func(p *Profile) { p.Devices[0].Kind = "\x1b[2J" },
		`devices[0].kind is "kkkk`:    func(p *Profile) { p.Devices[0].Kind = strings.Repeat("k", 65) },
		"devices[0].matmul_flops is 100000000000000000: want 0 to 10000000000000000": func(p *Profile) { p.Devices[0].MatMulFLOPS = 1e17 },
		"devices[0].attention_flops is -1":                                           func(p *Profile) { p.Devices[0].AttentionFLOPS = -1 },
		"devices[0].matmul_bf16_flops":                                               func(p *Profile) { p.Devices[0].MatMulBF16FLOPS = math.MaxInt64 },
		"devices[0].matmul_f16_flops":                                                func(p *Profile) { p.Devices[0].MatMulF16FLOPS = math.MinInt64 },
		"devices[0].memory_bytes_per_s":                                              func(p *Profile) { p.Devices[0].MemoryBytesPerS = 1 << 60 },
		"devices[0].memory_free_bytes":                                               func(p *Profile) { p.Devices[0].MemoryFreeBytes = 1 << 62 },
		"devices[0].copy_bytes_per_s":                                                func(p *Profile) { p.Devices[0].CopyBytesPerS = 1 << 60 },
		"devices[0].host_free_bytes":                                                 func(p *Profile) { p.Devices[0].HostFreeBytes = 1 << 62 },
		"devices[0].times of attention are [1 1 1 0":                                 func(p *Profile) { p.Devices[0].Times.AttentionForward = kernels.SizeTimes{1, 1, 1} },
		"devices[0].times_f16 of products are [0 0 0 0 0 0 1]":                       func(p *Profile) { p.Devices[0].TimesF16.Products[6] = 1 },
		"devices[0].times of copy are [-1":                                           func(p *Profile) { p.Devices[0].Times.Copy = kernels.SizeTimes{-1, 1, 1, 1, 1, 1, 1} },
		"devices[0].times_bf16 of products are [1 1 1 1 1 1 2199":                    func(p *Profile) { p.Devices[0].TimesBF16.Products = kernels.SizeTimes{1, 1, 1, 1, 1, 1, 1 << 41} },
		"disk_free_bytes":                                                            func(p *Profile) { p.DiskFreeBytes = 1 << 62 },
		"links[1].peer is \"b\", as another link's":                                  func(p *Profile) { p.Links[1].Peer = "b" },
		"links[1].peer is the profile's own peer":                                    func(p *Profile) { p.Links[1].Peer = "a" },
		"links[1].transport is \"smoke\"":                                            func(p *Profile) { p.Links[1].Transport = "smoke" },
		"links[1].peer is \"\"":                                                      func(p *Profile) { p.Links[1].Peer = "" },
		"links[0].rtt_nanos":                                                         func(p *Profile) { p.Links[0].RTTNanos = 61e9 },
		"links[0].jitter_nanos":                                                      func(p *Profile) { p.Links[0].JitterNanos = -1 },
		"links[0].bytes_per_s":                                                       func(p *Profile) { p.Links[0].BytesPerS = 1 << 51 },
		"17 devices":                                                                 func(p *Profile) { p.Devices = make([]DeviceProfile, 17) },
		"257 links":                                                                  func(p *Profile) { p.Links = make([]LinkProfile, 257) },
	} {
		p := good()
		change(&p)
		if err := p.Validate("a"); !errors.Is(err, ErrBadProfile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What 1,000 members claim, the most that a run has, adds up, with all of their devices; FLOPS and links those of one member.
func TestSumsOfClaimsAreExact(t *testing.T) {
	const members = 1000
	figures := append((&DeviceProfile{}).figures(), append((&Profile{}).figures(), (&LinkProfile{}).figures()...)...)
	for _, f := range figures {
		times := int64(MaxLinks)
		switch {
		case strings.HasSuffix(f.name, "_flops"):
			times = MaxDevices
		case strings.HasPrefix(f.name, "memory_") || strings.HasPrefix(f.name, "copy_") || strings.HasPrefix(f.name, "host_"):
			times = members * MaxDevices
		case f.name == "disk_free_bytes":
			times = members
		}
		if f.most > math.MaxInt64/times {
			t.Errorf("%s: %d times %d is above 2^63", f.name, times, f.most)
		}
	}
}

// A machine whose measurements are odd is not refused for them.
func TestClampedProfilesAreWithinBounds(t *testing.T) {
	odd := Profile{DiskFreeBytes: math.MaxInt64}
	for i, n := range []int64{math.MinInt64, -1, 0, 1, math.MaxInt64} {
		odd.Devices = append(odd.Devices, DeviceProfile{
			Name: fmt.Sprint(i), Model: "Card\x00 of\u2028\xff " + strings.Repeat("é", 300), Kind: strings.Repeat("k\n", 99), MatMulFLOPS: n, AttentionFLOPS: n, MatMulBF16FLOPS: n, MatMulF16FLOPS: n,
			MemoryBytesPerS: n, MemoryFreeBytes: n, CopyBytesPerS: n, HostFreeBytes: n,
		})
		odd.Links = append(odd.Links, LinkProfile{Peer: PeerID(fmt.Sprint(i)), RTTNanos: n, BytesPerS: n, JitterNanos: n})
	}
	before := odd.Devices[4]
	p := odd.Clamped()
	if err := p.Validate("a"); err != nil {
		t.Fatal(err)
	}
	if d := p.Devices[4]; d.MatMulFLOPS != MaxFLOPS || p.DiskFreeBytes != MaxDiskBytes || !strings.HasPrefix(d.Model, "Card of é") || len(d.Model) > maxModelText {
		t.Errorf("%+v", d)
	}
	if odd.Devices[4] != before || !reflect.DeepEqual(p.Clamped(), p) {
		t.Error("clamping changes its argument, or its own result")
	}
}

// A member that was slow and has no part since is believed again, later the more often it was; in a part of a plan it
// shows itself what it can.
func TestSlowMembersAreBelievedAgain(t *testing.T) {
	for lowered, want := range map[int]int{1: 2, 2: 4 + 2, 4: 16 + 8 + 4 + 2, 16: 12*16 + 16 + 8 + 4 + 2} {
		s, saved := Shown{}, 0
		for g := range lowered {
			s, _ = s.After(Generation(g+1), 1000, false)
		}
		if s = s.Saved(true); s.Idle != 0 || s.Lowered != lowered || s.Held {
			t.Errorf("lowered %d times, with a part: %+v", lowered, s)
		}
		for first := true; s.Lowered > 0 && saved < 1000; saved++ {
			s = s.Saved(false)
			if s.Lowered < lowered && first {
				first = false
				if !s.Held || s.FLOPS != 1000 {
					t.Errorf("believed again: %+v", s)
				}
			}
		}
		if saved != want {
			t.Errorf("lowered %d times: forgotten after %d checkpoints, want %d", lowered, saved, want)
		}
		if again, ok := s.After(99, 900, false); !ok || again.Lowered != 1 || again.Held {
			t.Errorf("slow again: %+v", again)
		}
	}
}

// TestTimesAreClampedAndStretched: what a disturbed clock made of times is what others accept, and stretched times are too.
func TestTimesAreClampedAndStretched(t *testing.T) {
	d := DeviceProfile{Name: "cpu", Times: kernels.WorkTimes{Products: kernels.SizeTimes{0, -5, 9, 7, 1 << 50, 3, 8}}}
	p := Profile{Devices: []DeviceProfile{d}}.Clamped()
	if got, want := p.Devices[0].Times.Products, (kernels.SizeTimes{1, 1, 9, 9, MaxWorkNanos, MaxWorkNanos, MaxWorkNanos}); got != want || p.Devices[0].TimesF16.Products.Measured() {
		t.Errorf("%v, want %v", got, want)
	}
	p.Devices[0] = p.Devices[0].Stretched(math.MaxInt64, 1)
	if err := p.Validate(""); err != nil {
		t.Error(err)
	}
	if got, want := p.Devices[0].Times.Products[0], int64(MaxWorkNanos); got != want {
		t.Errorf("stretched to %d, want %d", got, want)
	}
}
