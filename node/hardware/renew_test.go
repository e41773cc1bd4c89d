package hardware

import (
	"reflect"
	"testing"

	"pnode/planner/plan"
)

// What a node measured in a busy moment gives way to what it measures later, and noise does
// not: every change of a profile is an entry of the log.
func TestAProfileIsRenewedWhereItDiffers(t *testing.T) {
	device := plan.DeviceProfile{Name: "cpu", Model: "m", MatMulFLOPS: 100e9, AttentionFLOPS: 60e9, MemoryBytesPerS: 20e9, MemoryFreeBytes: 8 << 30}
	links := []plan.LinkProfile{{Peer: "p", RTTNanos: 1}}
	for _, tc := range []struct {
		name   string
		change func(*plan.DeviceProfile)
		renews bool
	}{
		{"nothing", func(*plan.DeviceProfile) {}, false},
		{"noise", func(d *plan.DeviceProfile) { d.MatMulFLOPS, d.MemoryFreeBytes = 95e9, 8<<30+1<<20 }, false},
		{"copies", func(d *plan.DeviceProfile) { d.CopyBytesPerS = 1e9 }, true},
		{"host memory", func(d *plan.DeviceProfile) { d.HostFreeBytes = 8 << 30 }, true},
		{"faster", func(d *plan.DeviceProfile) { d.MatMulFLOPS = 120e9 }, true},
		{"slower", func(d *plan.DeviceProfile) { d.AttentionFLOPS = 30e9 }, true},
		{"no rate at all", func(d *plan.DeviceProfile) { d.MemoryBytesPerS = 0 }, true},
		{"less memory", func(d *plan.DeviceProfile) { d.MemoryFreeBytes = 4 << 30 }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old := plan.Profile{Devices: []plan.DeviceProfile{device}, DiskFreeBytes: 1, Links: links}
			own := Machine{profile: old}
			changed := device
			tc.change(&changed)
			if got := own.renew(plan.Profile{Devices: []plan.DeviceProfile{changed}, DiskFreeBytes: 2}); got != tc.renews {
				t.Fatalf("renewed %v, want %v", got, tc.renews)
			}
			want := old
			if tc.renews {
				want.Devices, want.DiskFreeBytes = []plan.DeviceProfile{changed}, 2
			}
			if !reflect.DeepEqual(own.Profile(), want) {
				t.Fatalf("profile is %+v, want %+v", own.Profile(), want)
			}
		})
	}
}
