package devices

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestAdvice: machines are lists of cards (vendor, class) and of device files, of which those
// with a ! may not be opened.
func TestAdvice(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no colons in their names there, as the bus has")
	}
	working := func(name, pci string) Report { return Report{Devices: []Finding{{Name: name, PCI: pci, Passed: true}}} }
	none := Report{Missing: []Missing{{Backend: "opencl", Why: "no library"}}}
	for _, c := range []struct {
		name, machine string
		report        Report
		want          []string // in the lines, by line
	}{
		{"no card", "", none, nil},
		{"a card that is no GPU", "00:1f.0=0x8086,0x020000", none, nil},
		{"an AMD card without a driver", "03:00.0=0x1002,0x030000", none, []string{"AMD's card at 0000:03:00.0 is not in use: install an OpenCL driver", "ocl-icd-libopencl1"}},
		{"an accelerator", "03:00.0=0x1002,0x120000", Report{}, []string{"AMD's card"}},
		{"an NVIDIA card that works", "01:00.0=0x10de,0x030200", working("cuda:0", "0000:01:00.0"), nil},
		{"one of two works", "01:00.0=0x10de,0x030200 02:00.0=0x10de,0x030200", working("cuda:0", "0000:01:00.0"), []string{"NVIDIA's card at 0000:02:00.0"}},
		{"a device whose place is not known", "00:02.0=0x8086,0x030000", working("opencl:0", ""), nil},
		{"a driver that crashes", "etc/OpenCL/vendors/bad.icd", Report{Missing: []Missing{{Backend: "opencl", Why: "SIGSEGV", Crashed: true}}}, []string{"which has bad.icd"}},
		{"no rights", "dev/dri/renderD128! dev/dri/renderD129", Report{}, []string{"this user may not open"}},
	} {
		m := fakeMachine(t, c.machine)
		got := m.advise(c.report)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %d lines", c.name, got, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: line %q lacks %q", c.name, got[i], want)
			}
		}
	}
}

func fakeMachine(t *testing.T, what string) machine {
	t.Helper()
	m := machine{root: t.TempDir()}
	write := func(path, text string) {
		path = filepath.Join(m.root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	locked := map[string]bool{}
	for _, word := range strings.Fields(what) {
		address, card, isCard := strings.Cut(word, "=")
		if !isCard {
			file, no := strings.CutSuffix(word, "!")
			write(file, "")
			locked[filepath.Join(m.root, file)] = no
			continue
		}
		vendor, class, _ := strings.Cut(card, ",")
		dir := filepath.Join("sys/bus/pci/devices", "0000:"+address)
		write(filepath.Join(dir, "vendor"), vendor+"\n")
		write(filepath.Join(dir, "class"), class+"\n")
	}
	m.open = func(path string) error {
		if locked[path] {
			return os.ErrPermission
		}
		return nil
	}
	return m
}
