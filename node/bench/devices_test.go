package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/pipeline/model"
)

// tinyDevices are options for the processor, with sizes that take no time.
func tinyDevices(t *testing.T, only ...string) DeviceOptions {
	t.Helper()
	all := deviceSizes
	t.Cleanup(func() { deviceSizes = all })
	step := StepModel{Name: "tiny", Vocab: 64, Context: 8, Blocks: 2, Heads: 2, Channels: 16, Batch: 4}
	deviceSizes = []deviceSize{{
		name: "tiny", products: [][3]int{{8, 16, 24}}, attention: []kernels.AttentionShape{{B: 1, T: 8, H: 2, K: 2, D: 8}},
		batch: time.Microsecond, round: time.Microsecond, step: step, large: step,
		repeats: []repeatCase{{step, model.StorageBF16, 4, bf16Tolerance}},
	}}
	return DeviceOptions{Sides: Sides{Rounds: 1, Python: os.Args[0]}, Devices: []string{"cpu"}, Only: only, Size: "tiny", Limit: time.Minute, Binary: os.Args[0]}
}

// rows returns the rows of the only device, by their names.
func rows(t *testing.T, r DeviceReport) map[string][]DeviceRow {
	t.Helper()
	if len(r.Devices) != 1 {
		t.Fatalf("got %d devices, want 1", len(r.Devices))
	}
	by := map[string][]DeviceRow{}
	for _, row := range r.Devices[0].Rows {
		by[row.Row] = append(by[row.Row], row)
	}
	return by
}

// TestDevicesBesideAPeer runs this program's sides for real; the peer takes 1000 s for everything.
func TestDevicesBesideAPeer(t *testing.T) {
	o := tinyDevices(t)
	t.Setenv(fakePeer, "slow")
	r, err := Devices(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	by := rows(t, r)
	for name, want := range map[string]int{
		rowProducts: 2, rowAttention: 1, rowStep: 1, rowCompiled: 1, rowLarge: 1, rowLaunch: 1, rowCopies: 1, rowRepeat: 1, rowLosses: 1,
	} {
		if len(by[name]) != want {
			t.Fatalf("%d rows of %s, want %d", len(by[name]), name, want)
		}
	}
	for _, name := range []string{rowAttention, rowStep, rowCompiled} {
		if row := by[name][0]; !(row.Value > 0 && row.PeerValue > 0 && row.Ratio > 10) || row.Open != "" {
			t.Errorf("%+v", row)
		}
	}
	own, library := by[rowProducts][0], by[rowProducts][1]
	if !(own.Value > 0 && own.Ratio > 10) || own.Peer != "PyTorch" || !strings.Contains(own.Open, "no cuBLASLt") || !strings.Contains(library.Open, "no cuBLASLt") || library.Value != 0 {
		t.Errorf("products without cuBLASLt: %+v, %+v", own, library)
	}
	large := by[rowLarge][0]
	if !(large.Value > 0 && math.Abs(large.Ratio-large.Value/large.PeerValue) < 1e-9) || !strings.Contains(large.Note, "micro-batch 4") {
		t.Errorf("%+v", large)
	}
	if launch, copies := by[rowLaunch][0], by[rowCopies][0]; !launch.Lacking || !strings.Contains(launch.Note, "micro-batch 4") || !(copies.Value >= 0 && copies.Value <= 100) || !strings.Contains(copies.Note, "GB/s") || copies.Open != "" {
		t.Errorf("%+v, %+v", launch, copies) // the processor has no clock of its own; copies that small may miss all passes
	}
	if repeat, losses := by[rowRepeat][0], by[rowLosses][0]; repeat.Value != 4 || losses.Value != 0 || losses.Note == "" || !*repeat.Met || !*losses.Met {
		t.Errorf("%+v, %+v", repeat, losses)
	}
	if err := r.Strict(); err != nil {
		t.Error(err)
	}
	checkText(t, r, "Fake 1.0", "only losses are judged", "open [", "TFLOP/s", "not judged")
}

// TestDevicesWithoutAPeer leaves comparisons open, and gives this program's figures.
func TestDevicesWithoutAPeer(t *testing.T) {
	o := tinyDevices(t, rowAttention, rowStep, rowCompiled)
	o.Python = "/nonexistent/python3"
	r, err := Devices(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	by := rows(t, r)
	for name, measured := range map[string]bool{rowAttention: true, rowStep: true, rowCompiled: false} {
		row := by[name][0]
		if (row.Value > 0) != measured || row.Ratio != 0 || row.Met != nil || !strings.Contains(row.Open, "/nonexistent/python3") {
			t.Errorf("%+v", row)
		}
	}
	checkText(t, r, "pip install torch", "/nonexistent/python3")
}

// TestPeersThatFail leave their comparison open with what they say; where it is memory, smaller
// micro-batches are tried first.
func TestPeersThatFail(t *testing.T) {
	for behaviour, want := range map[string]string{"dies": "out of luck", "refuses": "too large", "is too small": "out of memory"} {
		o := tinyDevices(t, rowAttention, rowStep)
		t.Setenv(fakePeer, behaviour)
		r, err := Devices(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Devices[0].Rows {
			if !(row.Value > 0) || row.Ratio != 0 || !strings.Contains(row.Open, want) {
				t.Errorf("the peer %s: %+v", behaviour, row)
			}
		}
		batch := "micro-batch 4"
		if behaviour == "is too small" {
			batch = "micro-batch 1"
		}
		if note := rows(t, r)[rowStep][0].Note; !strings.Contains(note, batch) {
			t.Errorf("the peer %s: %s, want %s", behaviour, note, batch)
		}
	}
}

// TestProductsOnACard compares own kernels, cuBLASLt and PyTorch, which brings the library that the
// system lacks.
func TestProductsOnACard(t *testing.T) {
	o := tinyDevices(t, rowProducts)
	if err := o.fill(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(fakePeer, "slow")
	t.Setenv(fakeCard, "yes")
	for model, judged := range map[string]bool{"Slow": true, "NVIDIA H100 PCIe": false} {
		b := deviceBench{o: o, size: deviceSizes[0], device: devices.Finding{Name: "cuda:0", Model: model}, left: &eta{begin: time.Now(), cells: 1}}
		b.size.judged = true
		r := b.measure(t.Context())
		own, library := r.Rows[0], r.Rows[1]
		if !judged { // PyTorch has another card
			if !strings.Contains(r.NoPeer, "another card: Slow") || !strings.Contains(library.Open, "no cuBLASLt: products are by own kernels (no such library)") {
				t.Errorf("%+v", r)
			}
			continue
		}
		if own.Ratio != 0.5 || own.Open != "" || *own.Met || own.Peer != cuBLASLt {
			t.Errorf("own kernels: %+v", own)
		}
		if library.Ratio != 1000 || library.Open != "" || !*library.Met || library.Value != 2*own.Value {
			t.Errorf("cuBLASLt: %+v", library)
		}
		checkText(t, DeviceReport{Devices: []DeviceResult{r}}, "yes", "no", "PyTorch's /opt/fake")
	}
}

// TestRowsHaveALimit: a peer that says nothing is ended, and its row is open.
func TestRowsHaveALimit(t *testing.T) {
	o := tinyDevices(t, rowAttention)
	if err := o.fill(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(fakePeer, "is silent")
	o.Limit = 300 * time.Millisecond
	b := deviceBench{o: o, size: deviceSizes[0], device: devices.Finding{Name: "cpu"}, torchName: "cpu"}
	row := b.fill(t.Context(), b.cells()[0])[0]
	if want := "it took longer than 300 ms"; row.Open != want || row.Ratio != 0 {
		t.Errorf("%+v, want %q", row, want)
	}
}

// TestInterruptedDevices: what was not begun is open, and comes with the error.
func TestInterruptedDevices(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := Devices(ctx, tinyDevices(t))
	if !errors.Is(err, context.Canceled) || !r.HasRows() {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, row := range r.Devices[0].Rows {
		if row.Open != errInterrupted.Error() {
			t.Errorf("%+v", row)
		}
	}
}

// TestRowsAreJudged by their goals, where they are whole and of the sizes of the targets.
func TestRowsAreJudged(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		goal   goal
		row    DeviceRow
		judged bool
		want   *bool
	}{
		"met":                    {ratioAtLeast(0.7), DeviceRow{Ratio: 0.7}, true, &yes},
		"not met":                {ratioAtLeast(0.7), DeviceRow{Ratio: 0.69}, true, &no},
		"of another size":        {ratioAtLeast(0.7), DeviceRow{Ratio: 1}, false, nil},
		"without a comparison":   {ratioAtLeast(0.7), DeviceRow{Ratio: 1, Open: "no peer"}, true, nil},
		"without anything to be": {goal{}, DeviceRow{Ratio: 1}, true, nil},
	} {
		b := deviceBench{o: DeviceOptions{Limit: time.Minute}, size: deviceSize{judged: c.judged}}
		c.row.goal = c.goal
		row := b.fill(t.Context(), cell{rows: []DeviceRow{c.row}, measure: func(context.Context, []DeviceRow) error { return nil }})[0]
		if (row.Met == nil) != (c.want == nil) || row.Met != nil && *row.Met != *c.want {
			t.Errorf("%s: met is %v", name, row.Met)
		}
	}
}

func TestNoGPU(t *testing.T) {
	_, err := Devices(t.Context(), DeviceOptions{Sides: Sides{Rounds: 1}, Size: "small", Limit: time.Minute})
	if !errors.Is(err, errNoGPU) || !strings.Contains(err.Error(), "pnode doctor") {
		t.Errorf("got %v", err)
	}
}

func TestBadDeviceOptions(t *testing.T) {
	for want, change := range map[string]func(*DeviceOptions){
		"--rounds is 0": func(o *DeviceOptions) { o.Rounds = 0 }, "--only is \"speed\"": func(o *DeviceOptions) { o.Only = []string{"speed"} },
		"--size is \"huge\"": func(o *DeviceOptions) { o.Size = "huge" }, "--limit is 1ms": func(o *DeviceOptions) { o.Limit = time.Millisecond },
	} {
		o := tinyDevices(t)
		change(&o)
		if _, err := Devices(t.Context(), o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestKnownPeaks(t *testing.T) {
	for name, want := range map[string]float64{
		"NVIDIA A100-SXM4-80GB": 312, "NVIDIA H100 80GB HBM3": 989, "NVIDIA H100 PCIe": 756, "NVIDIA L40S": 362, "NVIDIA L4": 121,
		"NVIDIA GeForce RTX 4090": 165, "NVIDIA GeForce RTX 4090 D": 0, "NVIDIA GeForce RTX 4090 Laptop GPU": 0, "NVIDIA GeForce RTX 3090 Ti": 0,
		"NVIDIA A100-SXM4-40GB MIG 1g.5gb": 0, "NVIDIA H200": 989, "NVIDIA H200 NVL": 835, "NVIDIA GH200 480GB": 989, "NVIDIA T1000": 0, "NVIDIA GeForce RTX 4070": 0,
	} {
		if got, known := knownPeak(name); got != want*1e12 || known != (want > 0) {
			t.Errorf("%s: %v (%v), want %v TFLOP/s", name, got, known, want)
		}
	}
}

// TestTokenFLOPs: GPT-2's 124,439,808 parameters without the learned positions', and attention.
func TestTokenFLOPs(t *testing.T) {
	const want = 6*(124_439_808-1024*768) + 6*12*768*1025
	if got := gpt124M.tokenFLOPs(); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestModelsArePresets: what is measured is what a run of that name trains.
func TestModelsArePresets(t *testing.T) {
	for _, m := range []StepModel{nano, small10M, gpt124M, gpt1300M} {
		if want, err := model.Preset(m.Name); err != nil || m.config() != want {
			t.Errorf("%s is %+v, want %+v (%v)", m.Name, m.config(), want, err)
		}
	}
}

func TestWorkerRefusesTasks(t *testing.T) {
	for described, request := range map[string]string{
		"no task": "", `{"device":"cpu","kind":"dance"}`: "", `{"device":"abacus:0","kind":"step"}`: "",
		`{"device":"cpu","kind":"product","product":[4,4,4],"memory_bytes":1}`: `{"calls":1}`,
		`{"device":"cpu","kind":"product","product":[4,4,4]}`:                  `{"calls":0}`, `{"device":"cpu","kind":"product","product":[4,4,5]}`: "no request",
	} {
		var out bytes.Buffer
		err := Worker(t.Context(), described, strings.NewReader(request+"\n"), &out)
		lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		var last answer
		if broken := json.Unmarshal(lines[len(lines)-1], &last); broken != nil || err == nil || last.Error == "" {
			t.Errorf("%s, %s: %v, and tells %+v (%v)", described, request, err, last, broken)
		}
	}
}

// TestTorchAnswers runs the scripts with a PyTorch, where the machine has one.
func TestTorchAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("PyTorch takes seconds to begin")
	}
	for name, c := range map[string]struct {
		script  string
		what    any
		request any
	}{
		"product":   {torchCallsScript, torchCall{Device: "cpu", Product: []int{8, 16, 24}}, callRequest{Calls: 2}},
		"plain":     {torchCallsScript, torchCall{Device: "cpu"}, productRequest{callRequest: callRequest{Calls: 2}, DType: "bf16", M: 3, N: 5, K: 7, TransA: true, Threads: 1}},
		"added":     {torchCallsScript, torchCall{Device: "cpu"}, productRequest{callRequest: callRequest{Calls: 2}, DType: "f32", M: 3, N: 5, K: 7, TransB: true, Accumulate: true, Threads: 1}},
		"attention": {torchCallsScript, torchCall{Device: "cpu", Attention: []int{1, 8, 2, 8}}, callRequest{Calls: 2}},
		"step":      {torchStepScript, torchStep{StepModel{Vocab: 17, Context: 8, Blocks: 1, Heads: 2, Channels: 16, Batch: 2}, "cpu", "bf16", false}, stepRequest{2}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := startPeer(t.Context(), nil, c.what, "python3", "-c", c.script)
			if err != nil { // Debian's has PyTorch, another may come first
				p, err = startPeer(t.Context(), nil, c.what, "/usr/bin/python3", "-c", c.script)
			}
			if missing := []string{"No module named 'torch'", "no flash attention", "no such file or directory", "cannot find the"}; err != nil && slices.ContainsFunc(missing, func(text string) bool { return strings.Contains(err.Error(), text) }) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(p.hello.With, func(with string) bool { return strings.HasPrefix(with, "oneDNN ") }) {
				t.Errorf("%s is built with %q, want oneDNN among them", p.hello.Name, p.hello.With)
			}
			if a, err := p.ask(c.request); err != nil || a.Seconds <= 0 {
				t.Errorf("%+v, %v", a, err)
			}
			if err := p.close(); err != nil {
				t.Error(err)
			}
		})
	}
}
