package bench

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/kernels/devices"
)

// tinyBench measures a device with sizes that take no time.
func tinyBench(t *testing.T, f devices.Finding) deviceBench {
	t.Helper()
	o := tinyDevices(t)
	if err := o.fill(); err != nil {
		t.Fatal(err)
	}
	return deviceBench{o: o, size: deviceSizes[0], device: f, left: &eta{begin: time.Now(), cells: 1}}
}

// TestStrict: figures that are missing and losses that are off are refused, what the machine lacks and
// what is slow is not.
func TestStrict(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		row  DeviceRow
		want string // in the error, empty for none
	}{
		"slow":                 {DeviceRow{Row: rowProducts, Value: 1, Met: &no}, ""},
		"not compared":         {DeviceRow{Row: rowProducts, Value: 1, Open: "no peer"}, ""},
		"missing":              {DeviceRow{Row: rowStep, What: "a step", Open: "crashed"}, "cuda:0: a step: open: crashed"},
		"not on this machine":  {DeviceRow{Row: rowCompiled, Open: "no PyTorch", Lacking: true}, ""},
		"other losses":         {DeviceRow{Row: rowRepeat, What: "again", Value: 3, Unit: "losses", Target: "all 4", Met: &no}, "cuda:0: again: 3 losses, the target is all 4"},
		"losses that are far":  {DeviceRow{Row: rowLosses, Value: 7, Met: &no}, "7"},
		"losses that are near": {DeviceRow{Row: rowLosses, Value: 0, Met: &yes}, ""},
	} {
		err := DeviceReport{Devices: []DeviceResult{{Name: "cuda:0", Rows: []DeviceRow{c.row}}}}.Strict()
		if (err != nil) != (c.want != "") || err != nil && (!errors.Is(err, errStrict) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestOwnSidesArePlain where the device's matrix units ended the process that tried them.
func TestOwnSidesArePlain(t *testing.T) {
	t.Setenv(fakeCard, "yes")
	for plain, want := range map[bool]string{true: "vector units", false: "own kernels"} {
		b := tinyBench(t, devices.Finding{Name: "opencl:0", Plain: plain})
		p, err := b.own(t.Context(), task{Kind: productTask, Own: true}, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.hello.Kernel; got != want {
			t.Errorf("plain %v: products are by %s", plain, got)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestMemoryForSides(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		finding devices.Finding
		want    int64
	}{
		{devices.Finding{MemoryBytes: 16 * gib, FreeBytes: 10 * gib}, 9 * gib},
		{devices.Finding{MemoryBytes: 16 * gib, FreeBytes: 1}, 1},
		{devices.Finding{}, 0},
	} {
		if got, err := memoryFor(c.finding, true); got != c.want || err != nil {
			t.Errorf("%+v: %d bytes, want %d (%v)", c.finding, got, c.want, err)
		}
	}
	host := devices.Finding{Shared: true}
	alone, err := memoryFor(host, false)
	if err != nil {
		t.Fatal(err)
	}
	beside, err := memoryFor(host, true)
	if err != nil || beside < 2 || beside > alone/2 { // a third, of what changes meanwhile
		t.Errorf("%d bytes of the host's memory, beside PyTorch %d (%v)", alone, beside, err)
	}
}

// TestWithLittleMemory smaller micro-batches are tried.
func TestWithLittleMemory(t *testing.T) {
	b := tinyBench(t, devices.Finding{Name: devices.CPU, MemoryBytes: 1 << 20}) // as if it were a card
	b.noTorch = errors.New("no PyTorch")
	b.size.step = nano.sized(128, 4)
	var row DeviceRow
	if err := b.steps(t.Context(), &row, false); err == nil || !noRoom(err) {
		t.Errorf("%+v fits into a megabyte: %v", row, err)
	}
	b.device.MemoryBytes = 44 << 20
	if err := b.steps(t.Context(), &row, false); err != nil || !(row.Value > 0) || !strings.Contains(row.Note, "micro-batch ") || strings.Contains(row.Note, "micro-batch 4;") {
		t.Errorf("%+v, %v", row, err)
	}
}

// TestPyTorchThatSaysNothing leaves comparisons open within the limit.
func TestPyTorchThatSaysNothing(t *testing.T) {
	b := tinyBench(t, devices.Finding{Name: devices.CPU})
	b.o.Only = nil
	t.Setenv(fakePeer, "is mute")
	b.o.Limit = 300 * time.Millisecond
	r := b.measure(t.Context())
	if want := "it said nothing for 300 ms"; !strings.Contains(r.NoPeer, want) || b.noTorch == nil {
		t.Errorf("%+v, want %q", r, want)
	}
}

// TestWhatIsLeftOut is told of what was asked for.
func TestWhatIsLeftOut(t *testing.T) {
	d := devices.Diagnosis{
		Missing: []devices.Missing{{Backend: "cuda", Why: "no library"}},
		Devices: []devices.Diagnosed{
			{Finding: devices.Finding{Name: "opencl:0"}, Used: true},
			{Finding: devices.Finding{Name: "opencl:1", Problem: "computes wrong"}, Why: "it does not work"},
			{Finding: devices.Finding{Name: devices.CPU}, Why: "superfluous"},
		},
	}
	for names, want := range map[string][]string{
		"":                         {"no cuda devices: no library", "opencl:1: computes wrong"},
		"opencl:0 opencl:1":        {"opencl:1: computes wrong"},
		"opencl:0":                 nil,
		"opencl:0 cpu":             {"cpu: superfluous"},
		"opencl:0 cuda:0 opencl:1": {"no cuda devices: no library", "opencl:1: computes wrong"},
	} {
		found, leftOut := DeviceOptions{Devices: strings.Fields(names)}.choose(d)
		if len(found) != 1 || found[0].Name != "opencl:0" || !slices.Equal(leftOut, want) {
			t.Errorf("of %q: %v, left out %q, want %q", names, found, leftOut, want)
		}
	}
	checkText(t, DeviceReport{LeftOut: []string{"opencl:1: computes wrong"}}, "Left out: opencl:1: computes wrong")
}

// TestPeersImportPythonsOwn modules, whatever files of these names are in the folder they start in, and
// begin on a system without a module for resources.
func TestPeersImportPythonsOwn(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	beginning, _, found := strings.Cut(torchPeerScript, "cfg = ")
	if !found {
		t.Fatal("the script has no configuration")
	}
	for name, before := range map[string]string{"as it is": "", "without resource": "import sys; sys.modules['resource'] = None\n"} {
		c := exec.CommandContext(t.Context(), python, "-c", before+beginning+"print(glob.glob, json.dumps({}), os.sep, time.time(), resource)")
		c.Dir = t.TempDir()
		for _, module := range []string{"glob", "json", "os", "time", "resource"} {
			if err := os.WriteFile(filepath.Join(c.Dir, module+".py"), []byte("raise SystemExit('a file of this folder')"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
