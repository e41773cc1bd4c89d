package blame

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pnode/planner/plan"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata")

// TestJudge replays testdata/blame.txt: who says what in, and whose fault it is out. Rulings are remembered within a
// block.
func TestJudge(t *testing.T) {
	const file = "testdata/blame.txt"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for i, block := range strings.Split(strings.TrimSpace(string(want)), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		commands, _, _ := strings.Cut(block, "\n----")
		out.WriteString(commands + "\n----\n" + replayTrial(t, commands))
	}
	if *update {
		err = os.WriteFile(file, out.Bytes(), 0o644)
	} else if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%s differs, is:\n%s", file, out.String())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// replayTrial reads lines such as "a>b tensor 12", a's word against b; "owner o" is not in the plan, "computes o" is an
// owner that is, "members a b" are active. Each line "judge" is the end of a generation.
func replayTrial(t *testing.T, commands string) string {
	var out strings.Builder
	tr := Trial{Faults: map[plan.PeerID]int{}, Name: func(p plan.PeerID) string { return string(p) }}
	for line := range strings.Lines(commands) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "owner":
			tr.Owners = append(tr.Owners, plan.PeerID(words[1]))
		case words[0] == "computes":
			tr.Owners, tr.Computing = append(tr.Owners, plan.PeerID(words[1])), append(tr.Computing, plan.PeerID(words[1]))
		case words[0] == "quits":
			tr.Quitter = plan.PeerID(words[1])
		case words[0] == "members":
			tr.Active = len(words) - 1
		case words[0] == "alone":
			tr.Alone = true
		case words[0] == "start":
			_, err := fmt.Sscanf(line, "start %d older %d", &tr.Start, &tr.Older)
			if err != nil {
				t.Fatal(err)
			}
		case words[0] == "judge":
			out.WriteString(ruleOn(&tr) + "\n")
		default:
			by, accused, ok := strings.Cut(words[0], ">")
			step, err := strconv.Atoi(words[2])
			if !ok || err != nil {
				t.Fatalf("%q: want accuser>accused kind step", line)
			}
			tr.Accusations = append(tr.Accusations, accusation{By: plan.PeerID(by), Fault: plan.Fault{Accused: plan.PeerID(accused), Kind: plan.FaultKind(words[1]), Step: plan.Step(step)}})
		}
	}
	return out.String()
}

// ruleOn judges and remembers it, as the log does.
func ruleOn(tr *Trial) string {
	said := tr.Accusations
	r, ok := Judge(*tr)
	tr.Accusations = nil
	if tr.Quits++; tr.Quitter == "" || ok {
		tr.Quits = 0
	}
	switch {
	case !ok && len(said) > 0:
		tr.Links = append(tr.Links, said)
		return "no ruling"
	case !ok:
		return "no ruling"
	}
	text := fmt.Sprintf("%s: %s at step %d", r.Peer, r.Kind, r.Step)
	if r.Accuser != "" {
		text += fmt.Sprintf(" (says %s)", r.Accuser)
	}
	if r.Detail != "" {
		text += ", " + r.Detail
	}
	switch {
	case r.Back != 0:
		text = fmt.Sprintf("back to %d: %s", r.Back, text)
	case r.Diverged:
		text = "diverged: " + text
	case r.Out:
		text = "left out " + text
		r.Until = 1
		tr.Faults[r.Peer]++
	default:
		text = "noted " + text
	}
	tr.Past = append(tr.Past, r.Blame)
	return text
}

// The order in which heartbeats come does not change the ruling.
func TestJudgeInAnyOrder(t *testing.T) {
	said := []accusation{
		{By: "a", Fault: plan.Fault{Accused: "b", Kind: plan.NoProgress, Step: 3}},
		{By: "b", Fault: plan.Fault{Accused: "c", Kind: plan.BadTensor, Step: 3}},
		{By: "d", Fault: plan.Fault{Accused: "c", Kind: plan.LostLink, Step: 3}},
		{By: "d", Fault: plan.Fault{Accused: "e", Kind: plan.BadTensor, Step: 3}},
	}
	want, _ := Judge(Trial{Accusations: said})
	for range 24 {
		said = append(slices.Clone(said[1:]), said[0])
		said[0], said[1] = said[1], said[0]
		if got, ok := Judge(Trial{Accusations: said}); !ok || got != want {
			t.Errorf("%v gives %v, want %v", said, got, want)
		}
	}
}
