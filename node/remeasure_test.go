package node

import (
	"reflect"
	"testing"

	"pnode/planner"
)

// What a node measured in a busy moment gives way to what it measures later, and noise does
// not: every change of a profile is an entry of the log.
func TestAProfileIsRenewedWhereItDiffers(t *testing.T) {
	device := planner.DeviceProfile{Name: "cpu", Model: "m", MatMulFLOPS: 100e9, AttentionFLOPS: 60e9, MemoryBytesPerS: 20e9, MemoryFreeBytes: 8 << 30}
	links := []planner.LinkProfile{{Peer: "p", RTTNanos: 1}}
	for _, tc := range []struct {
		name   string
		change func(*planner.DeviceProfile)
		renews bool
	}{
		{"nothing", func(*planner.DeviceProfile) {}, false},
		{"noise", func(d *planner.DeviceProfile) { d.MatMulFLOPS, d.MemoryFreeBytes = 95e9, 8<<30+1<<20 }, false},
		{"copies", func(d *planner.DeviceProfile) { d.CopyBytesPerS = 1e9 }, true},
		{"host memory", func(d *planner.DeviceProfile) { d.HostFreeBytes = 8 << 30 }, true},
		{"faster", func(d *planner.DeviceProfile) { d.MatMulFLOPS = 120e9 }, true},
		{"slower", func(d *planner.DeviceProfile) { d.AttentionFLOPS = 30e9 }, true},
		{"no rate at all", func(d *planner.DeviceProfile) { d.MemoryBytesPerS = 0 }, true},
		{"less memory", func(d *planner.DeviceProfile) { d.MemoryFreeBytes = 4 << 30 }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old := planner.Profile{Devices: []planner.DeviceProfile{device}, DiskFreeBytes: 1, Links: links}
			var own ownProfile
			own.set(old)
			changed := device
			tc.change(&changed)
			if got := own.renew(planner.Profile{Devices: []planner.DeviceProfile{changed}, DiskFreeBytes: 2}); got != tc.renews {
				t.Fatalf("renewed %v, want %v", got, tc.renews)
			}
			want := old
			if tc.renews {
				want.Devices, want.DiskFreeBytes = []planner.DeviceProfile{changed}, 2
			}
			if !reflect.DeepEqual(own.get(), want) {
				t.Fatalf("profile is %+v, want %+v", own.get(), want)
			}
		})
	}
}
