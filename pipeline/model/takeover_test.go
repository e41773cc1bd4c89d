package model

import (
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/kernels/null"
)

// TestTakeOver: a stack takes over the memory of layers that another one has in the same form, and of nothing else; the
// memory that both have together never is more than the new one's and what was kept for it.
func TestTakeOver(t *testing.T) {
	all := tiny.Layers()
	for name, test := range map[string]struct {
		first, end               int // of the donor
		next                     StackConfig
		want                     []int
		otherDevice, keepNothing bool
	}{
		"the same layers":        {first: 1, end: 3, next: StackConfig{First: 1, End: 3}, want: []int{1, 2}},
		"fewer":                  {first: 1, end: 3, next: StackConfig{First: 2, End: 3}, want: []int{2}},
		"more":                   {first: 1, end: 2, next: StackConfig{First: 0, End: 3}, want: []int{1}},
		"another micro-batch":    {first: 0, end: 2, next: StackConfig{First: 0, End: 2, MicroBatch: 2, Slots: 3}, want: []int{0, 1}},
		"a tied pair":            {first: 0, end: all, next: StackConfig{First: 0, End: all}, want: []int{0, 1, 2, 3}},
		"a tied pair is parted":  {first: 0, end: all, next: StackConfig{First: 0, End: 3}, want: []int{1, 2}},
		"a tied pair is joined":  {first: 1, end: all, next: StackConfig{First: 0, End: all}, want: []int{1, 2}},
		"another storage":        {first: 1, end: 3, next: StackConfig{First: 1, End: 3, Storage: StorageBF16}, want: []int{1, 2}},
		"another device":         {first: 1, end: 3, next: StackConfig{First: 1, End: 3}, want: nil, otherDevice: true},
		"nothing was kept":       {first: 1, end: 3, next: StackConfig{First: 1, End: 3}, want: nil, keepNothing: true},
		"moments in parts":       {first: 1, end: 3, next: StackConfig{First: 1, End: 3, Shares: []Share{{Index: 0, Count: 2}, {}}}, want: []int{2}},
		"fewer vectors of state": {first: 1, end: 3, next: StackConfig{First: 1, End: 3, Moments: 1}, want: []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			device := &limited{Device: null.New()}
			cfg := StackConfig{Device: device, Model: tiny, First: test.first, End: test.end, MicroBatch: 1, Slots: 1, Moments: 2}
			donor, err := NewStack(cfg)
			must(t, err)
			next := test.next
			next.Device, next.Model, next.MicroBatch, next.Slots = device, tiny, max(1, next.MicroBatch), max(1, next.Slots)
			if next.Moments == 0 {
				next.Moments = 2
			}
			if test.otherDevice {
				next.Device = null.New()
			}
			whole, err := next.Memory()
			must(t, err)
			next.From = map[int]*Stack{}
			before := map[int]kernels.Buffer{}
			for l := test.first; l < test.end; l++ {
				next.From[l], before[l] = donor, donor.Params(l).Buf
			}
			donor.Shrink(func(l int) bool { return !test.keepNothing && next.First <= l && l < next.End })
			less, err := next.Memory()
			must(t, err)
			s, err := NewStack(next)
			must(t, err)
			var got []int
			for l := next.First; l < next.End; l++ {
				if s.TookOver(l) {
					got = append(got, l)
				}
				if took := s.Params(l).Buf == before[l] && before[l] != nil; took != s.TookOver(l) {
					t.Errorf("layer %d: taken over is %t, its memory is the donor's %t", l, s.TookOver(l), took)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("took over the layers %v, want %v", got, test.want)
			}
			if saved := whole.Total() - less.Total(); (saved > 0) != (len(test.want) > 0) {
				t.Errorf("it needs %d bytes less than without", saved)
			}
			donor.Close()
			s.Close()
			if device.live != 0 {
				t.Errorf("%d buffers are left", device.live)
			}
		})
	}
}
