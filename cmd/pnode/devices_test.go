package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/kernels/devices"
	"pnode/node/bench"
)

// diagnose returns the report of a program's "doctor --json" on this machine.
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
		if strings.HasPrefix(d.Name, "opencl:") {
			if d.Problem != "" {
				t.Fatalf("%s: %s", d.Name, d.Problem)
			}
			return d.Name
		}
	}
	t.Skip("OpenCL has no devices here")
	return ""
}

// TestTrainingOnOpenCLDevices compares the losses of the processor with those of another device,
// and of a pipeline of both.
func TestTrainingOnOpenCLDevices(t *testing.T) {
	t.Parallel()
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
			"--storage", "f32", "--devices", devices, "--trace", timeline,
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

// TestModelsOnOpenCLDevices: the likeliest tokens are the same wherever they are computed.
func TestModelsOnOpenCLDevices(t *testing.T) {
	t.Parallel()
	device, run, text := openCLDevice(t), t.TempDir(), textFile(t)
	start(t, "train", "--config", runFile(t, 8), "--dir", run, "--json", "--devices", "cpu").finish(0)
	on := func(devices, shown string, args ...string) string {
		p := start(t, append(args, "--dir", run, "--devices", devices)...)
		p.finish(0)
		if stderr := p.stderr.String(); !strings.Contains(stderr, ", on "+shown+"\n") {
			t.Errorf("%v is not said to be on %s:\n%s", args, shown, stderr)
		}
		return p.stdout.String()
	}
	generate := []string{"generate", "--prompt", "func", "--tokens", "20", "--temperature", "0"}
	want := on("cpu", "cpu", generate...)
	if got := on(device+",cpu", device, generate...); got != want || !strings.HasPrefix(got, "func") {
		t.Errorf("%s says %q, the processor %q", device, got, want)
	}
	want = on("cpu", "cpu", "eval", text)
	if got := on(device, device, "eval", text); !strings.Contains(got, text) || len(strings.Fields(got)) != len(strings.Fields(want)) {
		t.Errorf("%s gives %q, the processor %q", device, got, want)
	}
}

func near(t *testing.T, name string, got, want map[int]json.Number, tolerance float64) {
	t.Helper()
	for s, loss := range want {
		if !within(got[s], loss, tolerance) {
			t.Errorf("%s: step %d has loss %q, want %v within %v", name, s, got[s], loss, tolerance)
		}
	}
}

// within reports whether two numbers differ by no more than the tolerance.
func within(a, b json.Number, tolerance float64) bool {
	x, errX := a.Float64()
	y, errY := b.Float64()
	return errX == nil && errY == nil && math.Abs(x-y) <= tolerance
}

func TestUnknownDevicesAreExplained(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	start(t, "train", "--config", runFile(t, 2), "--dir", run, "--json").finish(0)
	for command, args := range map[string][]string{"train": nil, "doctor": nil, "generate": {"--dir", run, "--prompt", "a"}, "eval": {"--dir", run, textFile(t)}} {
		p := start(t, append([]string{command, "--devices", "opencl:999"}, args...)...)
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

// TestBenchOfADevice measures one that a driver has, with real processes; PyTorch has no such device.
func TestBenchOfADevice(t *testing.T) {
	t.Parallel()
	device := openCLDevice(t)
	p := start(t, "bench", "devices", "--devices", device, "--size", "small", "--rounds", "1", "--only", "products,repeat", "--strict", "--json")
	p.finish(0)
	var r bench.DeviceReport
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Devices) != 1 || r.Devices[0].Name != device || r.Devices[0].NoPeer == "" || r.Judged {
		t.Fatalf("got %+v", r)
	}
	measured := map[string]int{}
	for _, row := range r.Devices[0].Rows {
		if row.Value > 0 {
			measured[row.Row]++
		}
		if row.Row == "repeat" && row.Value != 4 {
			t.Errorf("%+v", row)
		}
	}
	if measured["products"] != 2 || measured["repeat"] != 2 {
		t.Errorf("measured %v in %+v", measured, r.Devices[0].Rows)
	}
}
