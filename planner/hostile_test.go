package planner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// counted is a context that counts how often a search looks whether it should end: before each order of devices
// and each simulation.
type counted struct {
	context.Context
	looks *int
}

func (c counted) Err() error { *c.looks++; return c.Context.Err() }

// made holds what Make gives, and how much it looked at.
type made struct {
	plan    plan.Plan
	reasons plan.Reasons
	err     error
	looks   int
}

func makeCounted(ctx context.Context, in Input) (m made) {
	m.plan, m.reasons, m.err = Make(counted{ctx, &m.looks}, in)
	return m
}

// absurd lists numbers that a profile may claim.
var absurd = []int64{
	0, 1, 2, 1000, 1e6, 1e9, 1e12, plan.MaxFLOPS - 1, plan.MaxFLOPS, plan.MaxMemoryBytes, plan.MaxDiskBytes, plan.MaxLinkBytesPerS, plan.MaxLinkNanos,
	-1, math.MinInt64, math.MaxInt64, 1 << 62, 1e17, plan.MaxFLOPS + 1,
}

// numbers reads the choices of a hostile profile from bytes; the end of them counts as zeros.
type numbers struct{ left []byte }

func (n *numbers) below(most int) int {
	if len(n.left) == 0 {
		return 0
	}
	b := n.left[0]
	n.left = n.left[1:]
	return int(b) % most
}

func (n *numbers) figure() int64 {
	if i := n.below(len(absurd) + 1); i < len(absurd) {
		return absurd[i]
	}
	var b [8]byte
	n.left = n.left[copy(b[:], n.left):]
	return int64(binary.LittleEndian.Uint64(b[:])) >> (n.below(64))
}

// hostile returns a member that says anything. Half of the profiles keep within the bounds of Validate.
func (n *numbers) hostile(others []Member) Member {
	names := []string{"cpu", "cuda:0", "cuda:0", "", "opencl:1", "\x00", strings.Repeat("x", 128), strings.Repeat("x", 129), "\u202egnp", "dev:0"}
	m := Member{Peer: "mallory", Draining: n.below(16) == 1}
	if n.below(32) == 1 && len(others) > 0 {
		m.Peer = others[0].Peer // of which there are two then
	}
	clamp := n.below(2) == 0
	for d := range n.below(18) {
		name := names[n.below(len(names))]
		if clamp {
			name = fmt.Sprint("dev:", d)
		}
		m.Profile.Devices = append(m.Profile.Devices, plan.DeviceProfile{
			Name: name, MatMulFLOPS: n.figure(), AttentionFLOPS: n.figure(), MatMulBF16FLOPS: n.figure(), MatMulF16FLOPS: n.figure(), MemoryBytesPerS: n.figure(),
			MemoryFreeBytes: n.figure(), CopyBytesPerS: n.figure(), HostFreeBytes: n.figure(),
		})
	}
	peers := []plan.PeerID{"nobody", "mallory", ""}
	for _, o := range others {
		peers = append(peers, o.Peer)
	}
	for i := range n.below(20) {
		peer := peers[n.below(len(peers))]
		if clamp {
			if peer = peers[i%len(peers)]; i >= len(peers) || peer == "" || peer == m.Peer {
				continue
			}
		}
		m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: peer, RTTNanos: n.figure(), BytesPerS: n.figure(), JitterNanos: n.figure()})
	}
	m.Profile.DiskFreeBytes = n.figure()
	if clamp {
		m.Profile = m.Profile.Clamped()
	}
	return m
}

// checkHostile wants that what a member says does not keep the others from a plan, nor make it much slower to find.
func checkHostile(t *testing.T, honest Input, m Member) {
	t.Helper()
	without := makeCounted(t.Context(), honest)
	if without.err != nil {
		return
	}
	in := honest
	in.Members = append(slices.Clone(honest.Members), m)
	doubled := slices.ContainsFunc(honest.Members, func(o Member) bool { return o.Peer == m.Peer })
	if doubled { // then nobody knows which of them is the member
		rest := honest
		rest.Members = slices.DeleteFunc(slices.Clone(honest.Members), func(o Member) bool { return o.Peer == m.Peer })
		if without = makeCounted(t.Context(), rest); without.err != nil {
			return
		}
	}
	with := makeCounted(t.Context(), in)
	if with.err != nil {
		t.Fatalf("%+v: %v", m, with.err)
	}
	if err := m.Profile.Validate(m.Peer); err != nil && !m.Draining {
		if with.plan.Places(m.Peer) {
			t.Errorf("%+v has a stage: %v", m, err)
		}
		if !slices.ContainsFunc(with.reasons, func(r plan.Reason) bool {
			return r.Kind == plan.ReasonLeftOut && strings.HasPrefix(r.Text, m.label())
		}) && !doubled {
			t.Errorf("no reason why %s is left out: %q", m.label(), with.reasons.Lines())
		}
	}
	step, alone := stepNanos(with.reasons), stepNanos(without.reasons)
	if step <= 0 || step > 3*alone {
		t.Errorf("%+v: a step takes %d ns with it, %d without", m, step, alone)
	}
	if with.looks > mostLooks {
		t.Errorf("%+v: %d looks, %d without it", m, with.looks, without.looks)
	}
}

// mostLooks bounds a search for the devices of five honest members and 16 of one that says anything: honest ones alone
// take up to three in four of them.
const mostLooks = 8000

func honestInput(rng *rand.Rand) Input {
	in := randomInput(rng)
	for i := range in.Members {
		in.Members[i].Draining = false
	}
	in.Members = in.Members[:min(len(in.Members), 5)]
	return in
}

// Attack: a member claims anything about devices, memory, disk and links. Plans of the others go on.
func TestHostileProfilesFailNobody(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 3))
	for range casesOf(150, 20) {
		honest := honestInput(rng)
		b := make([]byte, 200)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		n := numbers{b}
		checkHostile(t, honest, n.hostile(honest.Members))
	}
}

// Attack: a profile with one device name twice. It came into the log, and after the next death every plan failed
// until that node went.
func TestOneDeviceNameTwiceFailsNobody(t *testing.T) {
	in := randomInput(rand.New(rand.NewPCG(1, 2)))
	d := plan.DeviceProfile{Name: "cuda:0", MatMulFLOPS: 1e12, MemoryBytesPerS: 1e11, MemoryFreeBytes: 1 << 36}
	bad := Member{Peer: "mallory", Name: "eve", Profile: plan.Profile{Devices: []plan.DeviceProfile{d, d}}}
	checkHostile(t, in, bad)
	in.Members = append(in.Members, bad)
	_, reasons, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	want := `eve gets no stage: bad profile: devices[1].name is "cuda:0", as another device's: want a name of its own for each`
	if !slices.Contains(reasons.Lines(), want) {
		t.Errorf("reasons %q", reasons.Lines())
	}
	in.Members = []Member{bad}
	if _, _, err := Make(t.Context(), in); !errors.Is(err, ErrNotEnoughNodes) {
		t.Errorf("on its own: %v", err)
	}
}
