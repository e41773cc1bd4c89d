package devices

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// scriptVariable makes this test's binary a process that plays a driver: a line for each thing
// that happens, see play.
const scriptVariable = "PNODE_TEST_DRIVER"

// testProgram is this test.
var testProgram = os.Args[0]

func TestMain(m *testing.M) {
	if script := os.Getenv(scriptVariable); script != "" {
		play(script, os.Args[1:])
		return
	}
	os.Exit(m.Run())
}

// fullBytes are free of a device that is full: too few for anything, 0 would be unknown.
const fullBytes = 1

// play looks at the devices of a script, names with words: passes, fails, crashes, crashes on matrix
// units, babbles, is full.
func play(script string, args []string) {
	told := func(flag, name string) bool {
		return strings.Contains(" "+strings.Join(args, " ")+" ", " "+flag+" "+name+" ")
	}
	out := json.NewEncoder(os.Stdout)
	for _, line := range strings.Split(script, ";") {
		name, does, _ := strings.Cut(strings.TrimSpace(line), " ")
		if told("--skip", name) {
			continue
		}
		found := Finding{Name: name, Matrix: strings.HasSuffix(does, "matrix units"), Plain: told("--plain", name)}
		if found.Plain && does == "crashes on matrix units" {
			does = "passes"
		}
		_ = out.Encode(message{Begin: name, Matrix: found.Matrix && !found.Plain})
		switch does {
		case "crashes", "crashes on matrix units", "crashes anyway with matrix units":
			fmt.Fprintln(os.Stderr, "the last words\nand more")
			crash()
		case "babbles":
			fmt.Println("a driver's own line")
		case "is full":
			found.FreeBytes = fullBytes
		case "fails":
			found.Problem = "computes wrong"
			_ = out.Encode(message{Device: &found})
			continue
		case "is missing":
			_ = out.Encode(message{Missing: &Missing{Backend: name, Why: "no library"}})
			continue
		}
		found.Passed = true
		_ = out.Encode(message{Device: &found})
	}
	_ = out.Encode(message{Begin: over})
}

// crash ends the process as a bad pointer in a driver does.
func crash() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(syscall.SIGKILL)
	}
	if err != nil {
		panic(err)
	}
	select {}
}

func probe(t *testing.T, script string) Report {
	t.Helper()
	t.Setenv(scriptVariable, script)
	report, err := Probe{testProgram}.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestProbeSurvivesDrivers: what crashes is told, the rest is looked at.
func TestProbeSurvivesDrivers(t *testing.T) {
	if !HasDrivers() {
		t.Skip("this program opens no drivers")
	}
	r := probe(t, "cuda is missing; opencl:0 passes; opencl:1 crashes; opencl:2 babbles; opencl:3 fails; opencl:4 crashes; opencl:5 passes")
	var got []string
	for _, f := range r.Devices {
		got = append(got, fmt.Sprintf("%s %v %s", f.Name, f.Passed, f.Problem))
	}
	const crashed = "the driver ended its process: signal: killed: the last words"
	want := []string{
		"opencl:0 true ", "opencl:1 false " + crashed, "opencl:2 true ", "opencl:3 false computes wrong",
		"opencl:4 false " + crashed, "opencl:5 true ",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("devices\n%q, want\n%q", got, want)
	}
	if len(r.Missing) != 1 || r.Missing[0] != (Missing{Backend: "cuda", Why: "no library"}) {
		t.Errorf("missing: %v, want cuda once, of which three processes told", r.Missing)
	}
}

// TestProbeWithoutMatrixUnits: a device whose matrix units end the process is looked at again without
// them, and only once.
func TestProbeWithoutMatrixUnits(t *testing.T) {
	if !HasDrivers() {
		t.Skip("this program opens no drivers")
	}
	r := probe(t, "opencl:0 crashes on matrix units; opencl:1 passes; opencl:2 crashes anyway with matrix units; opencl:3 passes")
	const crashed = "the driver ended its process: signal: killed: the last words"
	want := []Finding{
		{Name: "opencl:0", Matrix: true, Plain: true, Passed: true, Products: "vector units (with matrix units, " + crashed + ")"},
		{Name: "opencl:1", Passed: true},
		{Name: "opencl:2", Problem: crashed},
		{Name: "opencl:3", Passed: true},
	}
	if !reflect.DeepEqual(r.Devices, want) {
		t.Errorf("devices\n%+v, want\n%+v", r.Devices, want)
	}
}

// TestProbeWithoutAList: a driver that crashes when it is opened is left out as a whole.
func TestProbeWithoutAList(t *testing.T) {
	if !HasDrivers() {
		t.Skip("this program opens no drivers")
	}
	r := probe(t, "cuda crashes; opencl:0 passes")
	if len(r.Devices) != 1 || r.Devices[0].Name != "opencl:0" {
		t.Errorf("devices: %v", r.Devices)
	}
	if len(r.Missing) != 1 || r.Missing[0].Backend != "cuda" || !strings.Contains(r.Missing[0].Why, "the last words") {
		t.Errorf("missing: %v", r.Missing)
	}
}

func TestProbeThatCannotStart(t *testing.T) {
	if !HasDrivers() {
		t.Skip("this program opens no drivers")
	}
	if _, err := (Probe{"/no/such/program"}).Run(t.Context(), nil); err == nil {
		t.Error("a probe without a program found out something")
	}
	if r, err := Probe(nil).Run(t.Context(), nil); err != nil || len(r.Devices) != 0 {
		t.Errorf("no probe: %v, %v", r, err)
	}
}

// TestOneCardWithTwoDrivers is told by its address on the bus.
func TestOneCardWithTwoDrivers(t *testing.T) {
	r := Report{Devices: []Finding{
		{Name: "cuda:0", PCI: "0000:01:00.0", Problem: "crashed"},
		{Name: "opencl:0", PCI: "0000:01:00.0", Passed: true},
		{Name: "opencl:1", PCI: "0000:01:00.0", Passed: true},
		{Name: "opencl:2", Passed: true},
		{Name: "opencl:3", Passed: true},
	}}
	r.unite()
	for i, want := range []string{"", "", "opencl:0", "", ""} {
		if got := r.Devices[i].Same; got != want {
			t.Errorf("%s is the same as %q, want %q", r.Devices[i].Name, got, want)
		}
	}
}

// FuzzListen: whatever a driver prints, the report is bounded and names what it tells of.
func FuzzListen(f *testing.F) {
	f.Add([]byte(`{"begin":"opencl"}` + "\n" + `{"device":{"name":"opencl:0","self_test_passed":true}}` + "\n" + `{"missing":{"backend":"cuda","why":"?"}}`))
	f.Add([]byte("words\n{\"begin\":1}\n{\"device\":{}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Report
		heard := 0
		listen(bytes.NewReader(data), &r, func() { heard++ })
		if heard > maxLines || len(r.Devices)+len(r.Missing) > 2*heard {
			t.Errorf("%d devices and %d missing drivers in %d lines", len(r.Devices), len(r.Missing), heard)
		}
		for _, d := range r.Devices {
			if d.Name == "" {
				t.Error("a device without a name")
			}
		}
	})
}
