package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/kernels/devices"
)

// diagnose is what a program's doctor says of this machine.
func diagnose(t *testing.T, args ...string) devices.Diagnosis {
	t.Helper()
	p := start(t, append([]string{"doctor", "--json"}, args...)...)
	p.finish(0)
	var d devices.Diagnosis
	if err := json.Unmarshal(p.stdout.Bytes(), &d); err != nil {
		t.Fatalf("doctor: %v", err)
	}
	return d
}

// openCLDevice is the first device with a driver, or skips the test on a machine without one.
func openCLDevice(t *testing.T) string {
	t.Helper()
	for _, d := range diagnose(t).Devices {
		if strings.HasPrefix(d.Name, "opencl:") && d.Problem == "" {
			return d.Name
		}
	}
	t.Skip("OpenCL has no devices here")
	return ""
}

// TestTrainingOnOpenCLDevices compares the losses of the processor with those of another device,
// and of a pipeline of both.
func TestTrainingOnOpenCLDevices(t *testing.T) {
	const steps, tolerance = 8, 1e-3
	device := openCLDevice(t)
	d := diagnose(t, "--devices", device)
	if first := d.Devices[0]; !first.Used || !first.Passed || first.Rates.MatMulFLOPS <= 0 {
		t.Errorf("doctor says of a device that was named: %+v", first)
	}
	file := runFile(t, steps)
	train := func(devices string, more ...string) (losses map[int]json.Number, workers string) {
		timeline := filepath.Join(t.TempDir(), "trace.json")
		args := []string{
			"train", "--config", file, "--dir", t.TempDir(), "--json", "--context", "32", "--micros", "2", "--held-out-every", "100",
			"--devices", devices, "--trace", timeline,
		}
		losses = start(t, append(args, more...)...).finish(0)
		trace, err := os.ReadFile(timeline)
		if err != nil {
			t.Fatal(err)
		}
		return losses, string(trace)
	}
	want, _ := train("cpu")
	for name, run := range map[string]struct {
		devices string
		cut     []string
	}{
		"alone":       {device, nil},
		"beside this": {device + ",cpu", []string{"--replicas", "1", "--stages", "2"}},
	} {
		got, workers := train(run.devices, run.cut...)
		for _, d := range strings.Split(run.devices, ",") {
			if !strings.Contains(workers, ": "+d+" of ") {
				t.Errorf("%s: no worker on %s", name, d)
			}
		}
		near(t, name, got, want, tolerance)
		if len(got) != steps {
			t.Errorf("%s: %d steps, want %d", name, len(got), steps)
		}
	}
}

func near(t *testing.T, name string, got, want map[int]json.Number, tolerance float64) {
	t.Helper()
	for s, loss := range want {
		w, err := loss.Float64()
		if err != nil {
			t.Fatal(err)
		}
		if g, err := got[s].Float64(); err != nil || !(math.Abs(g-w) <= tolerance) {
			t.Errorf("%s: step %d has loss %q, want %v within %v", name, s, got[s], w, tolerance)
		}
	}
}

func TestUnknownDevicesAreExplained(t *testing.T) {
	for _, command := range []string{"train", "doctor"} {
		p := start(t, command, "--devices", "opencl:999")
		for range p.steps {
		}
		_ = p.cmd.Wait() // the code says it
		text := p.stderr.String()
		if code := p.cmd.ProcessState.ExitCode(); code != exitUsage || strings.Contains(text, "goroutine ") {
			t.Errorf("%s: exit code %d:\n%s", command, code, text)
		}
		for _, want := range []string{"devices", "opencl:999", "cpu", "pnode doctor"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the message lacks %q:\n%s", command, want, text)
			}
		}
	}
}
