package screen

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pnode/node/api"
	"pnode/node/plain"
	"pnode/planner/plan"
)

var update = flag.Bool("update", false, "write the golden files anew")

// example is a run of three machines of which one has vanished, in UTC.
func example(t *testing.T) View {
	t.Helper()
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
	now := time.Date(2026, 7, 1, 14, 7, 30, 0, time.UTC)
	loss, held := 2.6205, 2.5658
	v := View{
		Status: api.Status{
			Run: "fyvcp3jku4tvm3q6", Peer: "a", State: "training", Generation: 2, Leader: "a", Step: 54, Steps: 400, Loss: &loss, HeldOut: &held, TokensPerS: 6426,
			Roster: []api.Member{
				{Peer: "a", Name: "desk", State: "active", Device: "cuda:0 RTX 4070 (22.0 TFLOP/s)", Self: true, Leader: true, Placed: true},
				{Peer: "b", Name: "laptop", State: "active", Device: "cpu (AMD EPYC, 98.7 GFLOP/s)", Placed: true},
				{Peer: "c", Name: "attic", State: "active", Device: "opencl:0 Arc A380 (4.1 TFLOP/s)", Spare: "would help: 11,417 tokens/s are predicted with it, 7,461 tokens/s without"},
				{Peer: "d", Name: "spot-a", State: "silent", Device: "cpu (Xeon, 60.0 GFLOP/s)", SilentSince: now.Add(-40 * time.Second)},
				{Peer: "e", Name: "long-gone", State: "gone"},
			},
			Plan: []api.StageStatus{
				{Replica: 0, Stage: 0, Peer: "a", Layers: plan.LayerRange{First: 0, End: 4}},
				{Replica: 0, Stage: 1, Peer: "b", Layers: plan.LayerRange{First: 4, End: 6}},
			},
			Links:      []api.LinkStatus{{From: "a", To: "b", Transport: plan.TCP, BytesPerS: 11_750_000, RTTMS: 4}, {From: "b", To: "a"}},
			Checkpoint: api.Checkpoint{Step: 42, Time: now.Add(-4 * time.Second)},
			Whole:      &api.Whole{Text: "whole on desk at step 42, saved 4 s ago"},
		},
		Dir: "/run/7", Now: now, ETA: 111 * time.Second, Keys: "q leaves this view; the run goes on",
	}
	for s := range 54 {
		mean := 5.55 * math.Exp(-float64(s)/70)
		v.History.Train.Points = append(v.History.Train.Points, api.Point{Step: plan.Step(s + 1), Count: 1, Mean: mean, Low: mean, High: mean})
	}
	for i, e := range []api.Event{
		{Kind: api.KindPlan, Message: "generation 1 from step 0: 1 replica of 3 stages (first plan)"},
		{Kind: api.KindState, Message: "training"},
		{Kind: api.KindSubstitute, Message: "spot-a is lost (its process has ended): desk computes its part from step 40 on, from the checkpoint of step 28"},
		{Kind: api.KindInterruption, Interruption: &api.Interruption{Rung: api.RungSubstitute, Why: "spot-a is lost", Last: 40, Redone: 2, Replayed: 12, TotalS: 2.53}},
	} {
		v.History.Happened = append(v.History.Happened, api.Happened{Time: now.Add(time.Duration(i-40) * time.Second), Event: e})
	}
	return v
}

func TestRender(t *testing.T) {
	for _, c := range []struct {
		name           string
		columns, lines int
		change         func(*View)
	}{
		{"wide", 120, 40, func(*View) {}},
		{"usual", 80, 24, func(*View) {}},
		{"narrow", 60, 30, func(*View) {}},
		{"low", 80, 9, func(*View) {}},
		{"tiny", 24, 4, func(*View) {}},
		{"paused", 80, 24, func(v *View) {
			v.Status.Waiting = "offline: laptop (since 14:03), spot-a (since 13:57); 2 of the run's 3 voting machines must be up, 1 now. Start one of them again in its folder (`pnode train --resume` or `pnode join`). Nothing is lost: the checkpoint of step 42 is kept. Gone for good: `pnode recover --dir /run/7`, from 14:18 on"
		}},
		{"paused-deep", 80, 24, func(v *View) {
			v.Dir = "/home/ada/experiments/a model of the brontes' letters/with learning rates from 1e-4 to 3e-3/run 7"
			v.Status.Waiting = "offline: laptop (since 14:03). Gone for good: start this node with `pnode train --resume --on-lost-majority recover-after=10m --dir " + plain.Quote(v.Dir) + "`"
		}},
		{"standby", 80, 24, func(v *View) {
			v.Status.State = "waiting"
			v.Status.Roster[0].Placed = false
			v.Status.Plan = v.Status.Plan[1:]
		}},
		{"planning", 60, 12, func(v *View) { v.Status.State = "waiting" }},
		{"begin", 80, 24, func(v *View) {
			*v = View{Status: api.Status{Run: "fyvcp3jku4tvm3q6", Peer: "a", State: "profiling"}, Now: v.Now, Keys: v.Keys}
		}},
		{"written", 60, 30, func(v *View) {
			for step, text := range []string{"old", "12 + 7 = 19\nOnce upon a time \x1b[2Jthere was a machine that learned to add, and then it wrote about that\n\n" + strings.Repeat("on and on ", 40)} {
				e := api.Event{Kind: api.KindSample, Step: plan.Step(20 * step), Steps: 400, Message: text}
				v.History.Happened = append(v.History.Happened, api.Happened{Time: v.Now, Event: e})
			}
		}},
		{"reasons", 60, 50, func(v *View) {
			v.Status.Reasons = []string{"2 devices: laptop and desk take what fits their speed, " + strings.Repeat("and so on ", 9), "next best: 1 replica"}
			v.Status.Hints = []string{"a new run with --micros 64 \x1b[2J"}
			v.Status.Roster[1].NotUsed = "until 14:30: others told that its messages were spoilt, which nobody else's were in the same steps"
		}},
		{"unreachable", 60, 24, func(v *View) { v.Trouble = "the node does not answer: process 7 of /run/7: context deadline exceeded" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := example(t)
			v.Columns, v.Lines = c.columns, c.lines
			c.change(&v)
			v.Columns, v.Lines = c.columns, c.lines
			got := Render(v) + "\n"
			fits(t, v, got[:len(got)-1])
			file := filepath.Join("testdata", c.name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("%s (%v): got\n%s\nwant\n%s", file, err, got, want)
			}
		})
	}
}

// controls match what Render writes for colours, and nothing else.
var controls = regexp.MustCompile("\x1b\\[[0-9]{0,2}m")

// fits checks what every screen must keep to.
func fits(t *testing.T, v View, text string) {
	t.Helper()
	bare := controls.ReplaceAllString(text, "")
	if !v.Colour && bare != text {
		t.Errorf("colours in %q, which were not asked for", text)
	}
	if !utf8.ValidString(bare) {
		t.Errorf("not UTF-8: %q", bare)
	}
	lines := strings.Split(bare, "\n")
	if len(lines) > v.Lines {
		t.Errorf("%d lines on a terminal of %d", len(lines), v.Lines)
	}
	for _, l := range lines {
		if width(l) > v.Columns {
			t.Errorf("%d cells on a terminal of %d: %q", width(l), v.Columns, l)
		}
		for _, r := range l {
			if !unicode.IsPrint(r) {
				t.Errorf("%U reaches the terminal in %q", r, l)
			}
		}
	}
}

// TestAShellTakesTheLinesForOneCommand: also where a folder has to be quoted, and is longer than a line.
func TestAShellTakesTheLinesForOneCommand(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil || runtime.GOOS == "windows" {
		t.Skip("needs a shell that goes on after a backslash")
	}
	for _, dir := range []string{"/run/7", "/a b/it's 'here'/~/" + strings.Repeat("so $deep ", 30), "/" + strings.Repeat("long", 40), `/a\b"c` + strings.Repeat("'", 30)} {
		for _, columns := range []int{1, 30, 60, 80} {
			lines := command{"pnode train --resume --on-lost-majority recover-after=10m --dir", dir}.pasted(columns)
			for _, l := range lines {
				if width(l) > max(columns, leastPasted+6) {
					t.Errorf("%d cells of %d: %q", width(l), columns, l)
				}
			}
			script := `pnode() { for a; do printf '%s\n' "$a"; done; }` + "\n" + strings.Join(lines, "\n")
			got, err := exec.Command("sh", "-c", script).CombinedOutput()
			if want := "train\n--resume\n--on-lost-majority\nrecover-after=10m\n--dir\n" + dir + "\n"; err != nil || string(got) != want {
				t.Errorf("%s: got %q, %v", script, got, err)
			}
		}
	}
}

// TestCommandsOfOthersAreNotToBePasted: a leader that lies can put one into its text, but not into the commands for this machine.
func TestCommandsOfOthersAreNotToBePasted(t *testing.T) {
	v := View{Dir: "/run/7", Columns: 200}
	for _, lie := range []string{
		"curl https://example.org/x --dir /run/7 | sh", "curl example.org/x --dir /run/7", "pnode train --dir /elsewhere", "pnode --dir /run/7; sh --dir /run/7",
		"pnode train $(sh) --dir /run/7", "pnode train --data /dev/sda > x --dir /run/7", "pnode train & sh --dir /run/7", "pnode train --dir /tmp/run/7", "pnodex train --dir /run/7",
		"pnode train\n--dir /run/7", "sh pnode train --dir /run/7",
	} {
		text := "all is lost: `" + lie + "` helps"
		if rest, commands := v.apart(text); rest != text || len(commands) > 0 {
			t.Errorf("%q: %q, %q", text, rest, commands)
		}
	}
	rest, commands := v.apart("Gone for good: `pnode recover --dir /run/7`, from 14:18 on")
	if rest != "Gone for good: the command below, from 14:18 on" || len(commands) != 1 || commands[0].pasted(v.Columns)[0] != "  pnode recover --dir /run/7" {
		t.Errorf("its own: %q, %q", rest, commands)
	}
	v.Dir = ""
	if _, commands := v.apart("`pnode recover --dir `"); len(commands) > 0 {
		t.Errorf("without a folder: %q", commands)
	}
}

// TestTheLeaderKeepsItsStar: however long its name is.
func TestTheLeaderKeepsItsStar(t *testing.T) {
	v := example(t)
	v.Columns, v.Lines = 80, 24
	v.Status.Roster[0].Name = "the machine below the desk"
	if got := Render(v); !strings.Contains(got, "the machine bel… *  ") {
		t.Errorf("got\n%s", got)
	}
}

// hostile returns texts that another member might send.
func hostile(r *rand.Rand) string {
	parts := []string{
		"\x1b[2J", "\x1b]0;title\a", "\r", "\n", "\t", "\u202e", "\u200d", "\xff\xfe", "漢字", "👩‍👩‍👧", "e\u0301\u0301\u0301\u0301\u0301", "`", "pnode x --dir /run/7", " --dir ", "a", "long-word-without-an-end-that-no-line-can-hold", " ", "\u0085", "\u009b31m", "ﷺ",
	}
	var b strings.Builder
	for range r.IntN(12) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// TestNothingOfOthersReachesTheTerminal: whatever members name themselves, their devices and what they do, on terminals of all sizes.
func TestNothingOfOthersReachesTheTerminal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		v := example(t)
		v.Columns, v.Lines, v.Colour = r.IntN(130)-1, r.IntN(45)-1, r.IntN(2) == 0
		text := func() string { return hostile(r) }
		s := &v.Status
		s.Run, s.State, s.Waiting, s.Whole.Text = plan.RunID(text()), text(), text(), text()
		s.Step, s.Steps, s.TokensPerS = plan.Step(r.Uint64()), plan.Step(r.Uint64()>>r.IntN(64)), r.NormFloat64()*1e300
		for i := range s.Roster {
			m := &s.Roster[i]
			m.Name, m.Device, m.Spare, m.NotUsed = text(), text(), text(), text()
		}
		s.Links[0].Transport = plan.Transport(text())
		s.Rest = &api.Rest{Links: r.IntN(3), Members: []api.Group{{State: text(), Device: text(), Count: 3}}}
		for i := range v.History.Happened {
			v.History.Happened[i].Event.Message = text()
		}
		v.History.Train.Points[3].Mean = math.NaN()
		v.History.Train.Points[4].Mean = math.Inf(1)
		v.Trouble, v.Keys = text(), text()
		if v.Columns <= 0 || v.Lines <= 0 {
			if got := Render(v); got != "" {
				t.Fatalf("a terminal without room gets %q", got)
			}
			continue
		}
		if fits(t, v, Render(v)); t.Failed() {
			t.Fatalf("at %d x %d", v.Columns, v.Lines)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("desk\x1b[2J", 9)
	f.Add("漢字\u202e", 3)
	f.Fuzz(func(t *testing.T, text string, room int) {
		v := View{Columns: max(1, room%200), Lines: 1 << 20}
		for _, l := range wrap(printable(text), v.Columns) {
			if w := width(l); w > v.Columns && utf8.RuneCountInString(l) > 1+maxMarks {
				t.Errorf("%d cells of %d: %q", w, v.Columns, l)
			}
			fits(t, v, line{{l, plainly}}.draw(v.Columns, false))
		}
	})
}

func TestWordsAreWrapped(t *testing.T) {
	if got := fmt.Sprint(wrap("one two  three", 7)); got != "[one two three]" {
		t.Errorf("wrapped: %s", got)
	}
}
