package progress

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pnode/planner/plan"

	"pnode/checkpoint"
	"pnode/kernels"
	"pnode/node/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got\n%s\nwant\n%s", path, got, want)
	}
}

func TestJSONLine(t *testing.T) {
	heldOut, f32 := 5.545177444479562, 5.5
	for _, tt := range []struct {
		event api.Event
		want  string
	}{
		{
			api.Event{Step: 12, Loss: 3.214501, TokensPerS: 5120.3, Generation: 1, Seq: 9, Steps: 600},
			`{"step":12,"loss":3.214501,"held_out":null,"tokens_per_s":5120,"generation":1}`,
		},
		{
			api.Event{Step: 50, Loss: 0.30000000000000004, HeldOut: &heldOut, TokensPerS: 123456789, Generation: 2},
			`{"step":50,"loss":0.30000000000000004,"held_out":5.545177444479562,"tokens_per_s":123456789,"generation":2}`,
		},
		{
			api.Event{Step: 50, Loss: 3.5, HeldOut: &heldOut, HeldOutF32: &f32, Generation: 2},
			`{"step":50,"loss":3.5,"held_out":5.545177444479562,"held_out_f32":5.5,"tokens_per_s":0,"generation":2}`,
		},
		{
			api.Event{Step: 3, Loss: 3.5, Generation: 2, LearningRate: 0.001, GradientNorm: &f32, StepS: 0.25, MemoryBytes: 1 << 30},
			`{"step":3,"loss":3.5,"held_out":null,"tokens_per_s":0,"generation":2,"learning_rate":0.001,"gradient_norm":5.5,"step_s":0.25,"memory_bytes":1073741824}`,
		},
		{api.Event{Loss: 1e-9}, `{"step":0,"loss":1e-09,"held_out":null,"tokens_per_s":0,"generation":0}`},
		{
			api.Event{Step: 1, Loss: math.NaN(), TokensPerS: math.Inf(1)},
			`{"step":1,"loss":null,"held_out":null,"tokens_per_s":null,"generation":0}`,
		},
	} {
		got := AppendJSON(nil, tt.event)
		if string(got) != tt.want+"\n" {
			t.Errorf(" got %swant %s", got, tt.want)
		}
		if !json.Valid(got) {
			t.Errorf("no JSON: %s", got)
		}
	}
}

// FuzzJSONLine: every loss is valid JSON and reads back to the same bits.
func FuzzJSONLine(f *testing.F) {
	for _, v := range []float64{0, 3.25, 1e-5, 1e21, math.MaxFloat64, math.SmallestNonzeroFloat64, -0.1} {
		f.Add(math.Float64bits(v))
	}
	f.Fuzz(func(t *testing.T, bits uint64) {
		loss := math.Float64frombits(bits)
		var line struct {
			Loss json.Number `json:"loss"`
		}
		b := AppendJSON(nil, api.Event{Loss: loss, HeldOut: &loss})
		if err := json.Unmarshal(b, &line); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return
		}
		if got, err := strconv.ParseFloat(line.Loss.String(), 64); err != nil || math.Float64bits(got) != bits {
			t.Errorf("%s: got %v, want %v", b, got, loss)
		}
	})
}

// script are the events of a short run, one second apart.
func script() []api.Event {
	heldOut := 3.5
	step := func(n int, heldOut *float64) api.Event {
		return api.Event{Kind: api.KindStep, Step: plan.Step(n), Steps: 10, Loss: 4 - float64(n)/10, HeldOut: heldOut, TokensPerS: 5120, Generation: 1}
	}
	return []api.Event{
		{Kind: api.KindState, Message: "training"},
		{Kind: api.KindPlan, Generation: 1, Message: "generation 1 from step 0: 1 replica of 3 stages"},
		step(1, nil), step(2, nil), step(3, nil), step(4, nil), step(5, &heldOut),
		{Kind: api.KindCheckpoint, Step: 5, Generation: 1},
		step(6, nil),
		{Kind: api.KindError, Message: "node …abc is gone:\n  * dial\x1b[2J"},
		step(7, nil), step(8, nil), step(9, nil), step(10, &heldOut),
		{Kind: api.KindSample, Message: "Once upon\na \x1b[31mtime\xff"},
		{Kind: api.KindDone, Step: 10, Message: "10 steps"},
	}
}

// play shows the script and gives what was written to the text and to the sample.
func play(t *testing.T, o Options) (text, sample []byte) {
	t.Helper()
	var textOut, sampleOut bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o.Text, o.Sample, o.Now = &textOut, &sampleOut, func() time.Time { return now }
	w := New(o)
	w.Notice("run folder: /x")
	for _, e := range script() {
		w.Event(e)
		now = now.Add(time.Second)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return textOut.Bytes(), sampleOut.Bytes()
}

func TestTextInAFile(t *testing.T) {
	text, sample := play(t, Options{})
	golden(t, "file.txt", text)
	if want := "Once upon\na \x1b[31mtime\xff\n"; string(sample) != want { // as it is
		t.Errorf("sample %q, want %q", sample, want)
	}
}

func TestTextOnATerminal(t *testing.T) {
	text, sample := play(t, Options{Terminal: true, SampleTerminal: true})
	golden(t, "sample.txt", sample)
	golden(t, "terminal.txt", bytes.ReplaceAll(text, []byte("\r"), []byte("<CR>")))
	for line := range strings.SplitSeq(string(text), "\n") {
		for shown := range strings.SplitSeq(line, "\r") {
			if len(shown) > 80 {
				t.Errorf("a line of %d characters wraps: %q", len(shown), shown)
			}
		}
	}
}

// TestTimeLeftForgetsPauses: after a pause of ten minutes the time left is that of the steps.
func TestTimeLeftForgetsPauses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		step  time.Duration
		batch int // steps that come at a time
	}{{"slow steps", 5 * time.Second, 1}, {"quick steps", 20 * time.Millisecond, 1}, {"another node's steps", 20 * time.Millisecond, 50}} {
		var p Pace
		now, left := time.Unix(0, 0), time.Duration(0)
		for step := 1; step <= 1000; step++ {
			if step == 600 {
				now = now.Add(10 * time.Minute)
			}
			if now = now.Add(tt.step); step%tt.batch == 0 {
				for s := step - tt.batch + 1; s <= step; s++ {
					left = p.Remaining(api.Event{Generation: 1, Step: plan.Step(s), Steps: 2000}, now)
				}
			}
		}
		if want := 1000 * tt.step; left < want*9/10 || left > want*11/10 {
			t.Errorf("%s: %v left, want about %v", tt.name, left, want)
		}
	}
}

// TestTimeLeftOfSteps: steps that come at once, as to a node that has just joined, say nothing of those to come.
func TestTimeLeftOfSteps(t *testing.T) {
	var p Pace
	now := time.Unix(0, 0)
	for step, want := plan.Step(33), time.Duration(0); step <= 55; step++ {
		if step > 50 {
			now = now.Add(4 * time.Second)
		}
		if step > 51 {
			want = time.Duration(120-step) * 4 * time.Second
		}
		if left := p.Remaining(api.Event{Generation: 1, Step: step, Steps: 120}, now); (left - want).Abs() > time.Second {
			t.Errorf("step %d: %v left, want %v", step, left, want)
		}
		now = now.Add(time.Microsecond)
	}
	if got := wholeSeconds(time.Millisecond); got != time.Second {
		t.Errorf("a millisecond is shown as %v", got)
	}
}

func TestJSONLinesOfARun(t *testing.T) {
	var lines bytes.Buffer
	play(t, Options{JSON: &lines})
	golden(t, "lines.json", lines.Bytes())
}

// TestLowerPrecisionIsTold below the held-out loss that it is about, but for the last, which the
// summary tells of.
func TestLowerPrecisionIsTold(t *testing.T) {
	heldOut, f32 := 3.5, 3.498
	for terminal, want := range map[bool]string{
		false: "step 1/2  loss 4.0000  held-out 3.5000\n  held-out in float32 throughout: 3.4980, lower precision costs +0.002\nstep 2/2  loss 4.0000\n",
		true:  "\rstep 1/2  loss 4.0000  held-out 3.5000\n  held-out in float32 throughout: 3.4980, lower precision costs +0.002\n\rstep 2/2  loss 4.0000\n",
	} {
		var text bytes.Buffer
		w := New(Options{Text: &text, Terminal: terminal, Now: func() time.Time { return time.Unix(0, 0) }})
		for step := range plan.Step(2) {
			w.Event(api.Event{Kind: api.KindStep, Step: step + 1, Steps: 2, Loss: 4, HeldOut: &heldOut, HeldOutF32: &f32})
		}
		if text.String() != want {
			t.Errorf("got %q, want %q", text.String(), want)
		}
	}
}

func TestLogLinesStandAlone(t *testing.T) {
	var text bytes.Buffer
	w := New(Options{Text: &text, Terminal: true, Steps: 4})
	w.Event(api.Event{Kind: api.KindStep, Step: 1, Loss: 2})
	if _, err := w.Write([]byte("level=WARN\n")); err != nil {
		t.Fatal(err)
	}
	if got, want := text.String(), "\rstep 1/4  loss 2.0000\nlevel=WARN\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// full fails like a full disk.
type full struct{}

var errFull = errors.New("disk full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestFailedWritesComeOut(t *testing.T) {
	w := New(Options{JSON: full{}, Text: &bytes.Buffer{}})
	w.Event(api.Event{Kind: api.KindStep, Step: 1})
	if err := w.Close(); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

// TestProfileTables: what nobody measured is a dash, what is counted in part is told, and names have no control characters.
func TestProfileTables(t *testing.T) {
	all := api.Profiles{
		Devices: []api.DeviceProfile{
			{Node: "desk", CountedPermille: 1000, PlannedMS: 210, MeasuredMS: 315, Layers: []plan.LayerRange{{End: 3}, {First: 6, End: 9}}, DeviceProfile: plan.DeviceProfile{
				Name: "cuda:0", Model: "RTX 4070", MatMulFLOPS: 22e12, MatMulBF16FLOPS: 88e12, MatMulF16FLOPS: 87e12, AttentionFLOPS: 9e12, MemoryBytesPerS: 440e9, MemoryFreeBytes: 11 << 30,
				Times:     kernels.WorkTimes{Products: kernels.SizeTimes{4000, 4000, 5000, 6000, 14000, 57000, 3_100_000}, Streaming: kernels.SizeTimes{3000, 3000, 3000, 8000, 41000, 152_000, 610_000}},
				TimesBF16: kernels.WorkTimes{Products: kernels.SizeTimes{4000, 4000, 4000, 5000, 7000, 20000, 780_000}},
			}},
			{Node: "lab\x1b[2J", CountedPermille: 505, DeviceProfile: plan.DeviceProfile{Name: "cpu", MatMulFLOPS: 17e9, AttentionFLOPS: 15e9, MemoryBytesPerS: 36e9, MemoryFreeBytes: 8 << 30}},
		},
		Links: []api.LinkProfile{
			{FromNode: "desk", ToNode: "lab", Used: true, LinkStatus: api.LinkStatus{BytesPerS: 11_750_000, RTTMS: 41, JitterMS: 1.25, Live: true, Transport: plan.TCP}},
			{FromNode: "lab", ToNode: "desk", LinkStatus: api.LinkStatus{BytesPerS: 11_750_000, RTTMS: 41}},
			{FromNode: "lab", ToNode: "barn"},
		},
	}
	var b bytes.Buffer
	if err := Profiles(&b, all); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\n")
	if err := Profiles(&b, api.Profiles{Devices: all.Devices[:1]}); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\n")
	if err := Profiles(&b, api.Profiles{Devices: all.Devices[1:], Links: all.Links[:1], Rest: &api.ProfilesRest{Devices: 999, Links: 7000}}); err != nil {
		t.Fatal(err)
	}
	golden(t, "profiles.txt", b.Bytes())
}

func TestStatusTable(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	loss, heldOut := 3.2145, 3.4
	const self, other = "12D3KooWaaaaaaaaSELFSELF", "12D3KooWaaaaaaaOTHEROTHER"
	st := api.Status{
		Run: "abc", Peer: self, State: "training", Generation: 2, Term: 3, Leader: other, Step: 12, Steps: 600,
		Loss: &loss, HeldOut: &heldOut, TokensPerS: 5120, ETAS: 130,
		Roster: []api.Member{
			{Peer: self, Name: "desk", State: "active", Device: "cpu", Self: true},
			{Peer: other, State: "active\x1b[2J", Device: "cpu", Leader: true, LastSeenS: 0.4},
			{Peer: "12D3KooWaaaaaaaaaaaGONE", State: "gone", Device: "cpu", LastSeenS: 83.6},
			{Peer: "12D3KooWaaaaaaaaaaNEVER", State: "joining", Device: "cpu"},
		},
		Plan: []api.StageStatus{
			{Peer: self, Device: "cpu", Layers: plan.LayerRange{First: 0, End: 3}, ForwardMS: 12.34, BackwardMS: 25, WaitMS: 1, UpdateMS: 2},
			{Stage: 1, Peer: other, Device: "cpu", Layers: plan.LayerRange{First: 3, End: 6}},
		},
		Substitute:     &api.Substitute{Lost: other, By: self, From: api.SourceReplica, Text: "lab\x1b is lost, and desk computes its part until the next plan"},
		PostValidation: &api.PostValidation{Optimistic: 9, RolledBack: 1, Text: "steps are applied\x1b before their commit: 9 by this node, 1 rolled back"},
		Links: []api.LinkStatus{
			{From: self, To: other, BytesPerS: 11_750_000, RTTMS: 41, Live: true, Transport: plan.TCP, Reason: "UDP gets\x1b no answer"},
			{From: other, To: self, BytesPerS: 250_000, Transport: plan.Relay},
			{From: self, To: "12D3KooWaaaaaaaaaaNEVER", BytesPerS: 11_750_000, RTTMS: 41, Transport: plan.QUIC},
		},
		Reasons:    []string{"stage 0 gets 3 layers: the embedding costs little"},
		Checkpoint: api.Checkpoint{Step: 10, Time: now.Add(-75 * time.Second)},
		Addrs:      []string{"/ip4/127.0.0.1/udp/4001/quic-v1/p2p/" + self},
		Data:       api.Data{SizeBytes: 16_000_000, HeldOutBytes: 160},
	}
	var b bytes.Buffer
	if err := Status(&b, st, now, 0); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\n")
	if err := Status(&b, api.Status{Run: "abc", Peer: self, Leader: self, State: "joining"}, now, 0); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\n")
	if err := Status(&b, api.Status{Run: "abc", Peer: self, Leader: self, State: "training", Step: 4, Steps: 9, HeldOut: &heldOut, HeldOutF32: &loss, Checkpoint: api.Checkpoint{Step: 3}}, now, 0); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\n")
	st.Waiting, st.Plan, st.Roster = "no leader:\x1b 1 of 3 voters is up", nil, nil
	if err := Status(&b, st, now, 0); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.txt", b.Bytes())
	if err := Status(full{}, st, now, 0); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

func TestCheckpointTables(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var b bytes.Buffer
	err := errors.Join(
		Checkpoints(&b, nil, now),
		Checkpoints(&b, []api.StoredCheckpoint{
			{Step: 100, Generation: 2, Layers: 6, SizeBytes: 1<<20 + 12, Time: now.Add(-75 * time.Second), Holders: []plan.PeerID{"a", "b", "c"}, HolderNames: []string{"desk", "lap\x1b[2Jtop", "…b"}, Copies: 2, Here: 6},
			{Step: 75, Generation: 2, Layers: 6, SizeBytes: 1 << 20, Holders: []plan.PeerID{"a", "b", "c", "d", "e"}, HolderNames: []string{"1", "2", "3", "4", "5"}, Copies: 3, Here: 6},
			{Step: 50, Generation: 1, Layers: 6, SizeBytes: 999, Holders: []plan.PeerID{"a"}, HolderNames: []string{"desk"}, Copies: 1},
		}, now),
		Verified(&b, checkpoint.Report{Chunks: 4, Bytes: 5000, Manifests: []checkpoint.ManifestReport{
			{Step: 100, Generation: 2, Layers: 6, Here: 6, OK: true}, {Step: 50, Generation: 1, Layers: 6, Here: 2, OK: true},
		}, Unfinished: []checkpoint.Unfinished{{Here: 1, Chunks: 2}, {Step: 100, Here: 3, Chunks: 9}}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	err = Verified(&b, checkpoint.Report{
		Folder: "/x/store", Missing: []plan.Hash{{1}}, Corrupt: []plan.Hash{{2}}, Damaged: errors.New("manifest of step 7: checksum"),
		Manifests: []checkpoint.ManifestReport{{Step: 100, Generation: 2, Layers: 6, Here: 5}},
	})
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if err := VerifiedFiles(&b, []string{"run.json", "ledger"}, nil); err != nil {
		t.Error(err)
	}
	if err := VerifiedFiles(&b, []string{"run.json", "ledger"}, []string{"/x/run.json: it is missing: start the node"}); !errors.Is(err, ErrFilesDamaged) {
		t.Errorf("got %v", err)
	}
	golden(t, "checkpoints.txt", b.Bytes())
}

// TestLsAndVerifyAgreeOnTheIndex: an index that is damaged damages no checkpoint, whichever command looks.
func TestLsAndVerifyAgreeOnTheIndex(t *testing.T) {
	index := errors.New("both files of the journal are damaged")
	listed, verified := Listed(api.CheckpointList{Index: index.Error()}), Verified(io.Discard, checkpoint.Report{Index: index})
	for name, err := range map[string]error{"ls": listed, "verify": verified} {
		if !errors.Is(err, ErrIndexDamaged) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), index.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Listed(api.CheckpointList{Damaged: "step 2", Index: index.Error()}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "step 2") {
		t.Errorf("both: %v", err)
	}
	if err := Listed(api.CheckpointList{}); err != nil {
		t.Error(err)
	}
}

// TestWhatIsSaidTwiceIsShownOnce: a node that leaves a finished run tells why it stays as its way out, and as what it waits for.
func TestWhatIsSaidTwiceIsShownOnce(t *testing.T) {
	var text bytes.Buffer
	w := New(Options{Text: &text})
	for _, e := range []api.Event{
		{Kind: api.KindDrain, Message: "desk lacks layers"},
		{Kind: api.KindWaiting, Message: "desk lacks layers"},
		{Kind: api.KindWaiting, Message: "lab is away"},
		{Kind: api.KindStep, Step: 1},
		{Kind: api.KindWaiting, Message: "lab is away"},
	} {
		w.Event(e)
	}
	if got, want := text.String(), "drain: desk lacks layers\nwaiting: lab is away\nstep 1  loss 0.0000\nwaiting: lab is away\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNothingIsWaitedForAfterAStop, but a finished node says for whom it stays.
func TestNothingIsWaitedForAfterAStop(t *testing.T) {
	for want, end := range map[string]api.Event{
		"state: waiting for the first plan\ndone: stopped\n":                           {Kind: api.KindDone, Message: "stopped", Steps: 9},
		"state: waiting for the first plan\ndone: finished\nwaiting: lab is to have\n": {Kind: api.KindDone, Message: "finished", Step: 9, Steps: 9},
	} {
		var text strings.Builder
		w := New(Options{Text: &text})
		w.Event(api.Event{Kind: api.KindState, Message: "waiting"})
		w.Event(end)
		w.Event(api.Event{Kind: api.KindWaiting, Message: "lab is to have"})
		if got := text.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := Describe(api.Event{Kind: api.KindState, Generation: 2, Message: "waiting"}); !strings.Contains(got, "standby") {
		t.Errorf("without a part of the second plan: %s", got)
	}
}

// TestTextsWhileTheRunGoesOn stand on lines of their own beside the steps, free of what a terminal obeys, and as lines of JSON where those are wanted.
func TestTextsWhileTheRunGoesOn(t *testing.T) {
	e := api.Event{Kind: api.KindSample, Step: 20, Steps: 100, Message: "Once \x1b[2Jupon\na time\n"}
	for _, wanted := range []bool{false, true} {
		var text, sample, lines bytes.Buffer
		w := New(Options{Text: &text, Sample: &sample, JSON: &lines, JSONSamples: wanted, Terminal: true})
		w.Event(api.Event{Kind: api.KindStep, Step: 21, Steps: 100, Loss: 2})
		lines.Reset()
		w.Event(e)
		if got, want := text.String(), "\rstep 21/100  loss 2.0000\nthe model of step 20 writes:\n  Once \ufffd[2Jupon\n  a time\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		want := ""
		if wanted {
			want = `{"step":20,"sample":"Once \u001b[2Jupon\na time\n"}` + "\n"
		}
		if lines.String() != want || sample.Len() > 0 {
			t.Errorf("JSON %q, want %q; and %q", lines.String(), want, sample.String())
		}
	}
}
