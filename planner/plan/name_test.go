package plan

import (
	"strings"
	"testing"
)

// TestDeviceTitle: a device is called by its product; of the same product also by its own name.
func TestDeviceTitle(t *testing.T) {
	xeon := DeviceProfile{Name: "cpu", Model: "Intel(R) Xeon(R) Gold 6226R CPU @ 2.90GHz"}
	card := func(name string) DeviceProfile { return DeviceProfile{Name: name, Model: "NVIDIA H200"} }
	for _, c := range []struct {
		all        []DeviceProfile
		name, want string
	}{
		{[]DeviceProfile{xeon}, "cpu", "Intel Xeon Gold 6226R"},
		{[]DeviceProfile{{Name: "cpu", Model: "AMD Ryzen 9 7950X 16-Core Processor"}}, "cpu", "AMD Ryzen 9 7950X"},
		{[]DeviceProfile{xeon, card("cuda:0")}, "cuda:0", "NVIDIA H200"},
		{[]DeviceProfile{card("cuda:0"), card("cuda:1")}, "cuda:1", "NVIDIA H200 cuda:1"},
		{[]DeviceProfile{{Name: "cpu"}}, "cpu", "cpu"},
		{[]DeviceProfile{{Name: "cpu"}, {Name: "cuda:0"}}, "cuda:0", "cuda:0"},
		{nil, "cuda:0", "cuda:0"},         // of a member that nobody knows any more
		{nil, "a\x1b[2J\u202eb", "a[2Jb"}, // as no member may call a device
		{[]DeviceProfile{{Name: "x", Model: " (R) "}}, "x", "x"},
	} {
		if got := DeviceTitle(c.all, c.name); got != c.want {
			t.Errorf("%q of %+v is called %q, want %q", c.name, c.all, got, c.want)
		}
	}
	long := DeviceProfile{Name: "x", Model: strings.Repeat("é", 200) + "\n"}
	if got := DeviceTitle([]DeviceProfile{long}, "x"); len([]rune(got)) != mostTitle || !strings.HasSuffix(got, "é…") {
		t.Errorf("a long name is %q", got)
	}
	if got := DeviceOf("desk", "NVIDIA H200"); got != "desk (NVIDIA H200)" {
		t.Errorf("got %q", got)
	}
}
