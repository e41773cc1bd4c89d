package node

import (
	"fmt"
	"strings"
	"testing"

	"pnode/node/api"
	"pnode/planner/plan"
)

// TestChronicle runs scripts of a node's life. "begin 2/29" is a generation from a step on,
// "late 2/35" the first that a node hears of one that it came too late for, "own" are steps of
// its workers, "read" those of another node's chronicle, "give up" ends waiting. What is shown
// at once follows "->".
func TestChronicle(t *testing.T) {
	for name, script := range map[string]string{
		"all of a generation": `
			begin 1/0
			own 1/1 1/2 -> 1/1 1/2
			read 1/2 1/3 -> 1/3`,
		"outside the plan": `
			begin 1/0
			read 1/1 1/2 1/3 -> 1/1 1/2 1/3
			read 1/2 1/3 1/4 -> 1/4`,
		"into the plan, with the end of the generation before missing": `
			begin 1/0
			read 1/1 1/2 -> 1/1 1/2
			begin 2/4
			own 2/5 2/6
			read 1/3 -> 1/3
			read 1/3 1/4 2/5 -> 1/4 2/5 2/6
			own 2/7 -> 2/7`,
		"nobody tells what is missing": `
			begin 1/0
			own 1/1 -> 1/1
			begin 2/4
			own 2/5
			give up -> 2/5
			read 1/2 1/3 1/4 2/5`,
		"a third generation before the second is told": `
			begin 1/0
			own 1/1 -> 1/1
			begin 2/4
			own 2/5
			begin 3/4 -> 2/5
			own 3/5 -> 3/5`,
		"back to an older checkpoint": `
			begin 1/0
			own 1/1 1/2 1/3 -> 1/1 1/2 1/3
			begin 2/2
			own 2/3 -> 2/3`,
		"a resumed run":              "begin 4/30\nown 4/31 -> 4/31",
		"a node that came too late":  "late 2/35\nread 2/34 2/35 2/36 -> 2/35 2/36\nbegin 3/37\nown 3/38\nread 2/37 -> 2/37 3/38",
		"told before the log did it": "begin 1/0\nread 1/1 2/2 -> 1/1 2/2\nbegin 2/1\nread 2/3 -> 2/3",
	} {
		t.Run(name, func(t *testing.T) {
			var c chronicle
			for line := range strings.Lines(strings.TrimSpace(script)) {
				said, want, _ := strings.Cut(strings.TrimSpace(line), "->")
				word, rest, _ := strings.Cut(strings.TrimSpace(said), " ")
				if got := spell(carryOut(t, &c, word, rest)); got != strings.TrimSpace(want) {
					t.Errorf("%s: shown %q", strings.TrimSpace(line), got)
				}
			}
		})
	}
}

func carryOut(t *testing.T, c *chronicle, word, rest string) (shown []api.Event) {
	t.Helper()
	var events []api.Event
	for _, w := range strings.Fields(rest) {
		e := api.Event{Kind: api.KindStep}
		if _, err := fmt.Sscanf(w, "%d/%d", &e.Generation, &e.Step); err == nil {
			events = append(events, e)
		}
	}
	switch word {
	case "begin":
		return c.begin(events[0].Generation, events[0].Step)
	case "late":
		c.beginAt(placeOf(events[0]))
	case "own":
		for _, e := range events {
			shown = append(shown, c.note(e)...)
		}
	case "read":
		return c.take(events)
	case "give":
		return c.giveUp()
	default:
		t.Fatalf("what is %q?", word)
	}
	return shown
}

func spell(events []api.Event) string {
	var words []string
	for _, e := range events {
		words = append(words, fmt.Sprintf("%d/%d", e.Generation, e.Step))
	}
	return strings.Join(words, " ")
}

func TestAChronicleIsBounded(t *testing.T) {
	var c chronicle
	c.begin(1, 0)
	for i := range 3 * maxChronicle {
		c.note(api.Event{Kind: api.KindStep, Generation: 1, Step: plan.Step(i + 1)})
	}
	all, some := c.after(place{}), c.after(place{1, 3*maxChronicle - 2})
	if len(all) != maxChronicle || len(some) != 2 || some[0].Step != 3*maxChronicle-1 {
		t.Errorf("%d steps are kept, after the last but two %s", len(all), spell(some))
	}
	c.begin(2, 4*maxChronicle)
	shown := 0
	for i := range maxChronicle {
		shown += len(c.note(api.Event{Kind: api.KindStep, Generation: 2, Step: plan.Step(4*maxChronicle + i + 1)}))
	}
	if shown != maxChronicle || c.owed != 0 {
		t.Errorf("%d steps of the generation after a gap are shown, owed is %d", shown, c.owed)
	}
}

func FuzzSteps(f *testing.F) {
	f.Add([]byte(`[{"kind":"step","generation":1,"step":2,"loss":3.5},{"kind":"step","generation":2,"step":1,"loss":null,"heldout":2.5}]`))
	f.Add([]byte(`[{"kind":"done"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := decodeSteps(data)
		if err != nil {
			return
		}
		var c chronicle
		c.begin(0, 0)
		shown := c.take(events)
		for i, e := range shown {
			if i > 0 && placeOf(shown[i-1]).compare(placeOf(e)) >= 0 {
				t.Fatalf("out of order: %s", spell(shown))
			}
		}
		if len(c.kept) > maxChronicle {
			t.Fatalf("%d steps are kept", len(c.kept))
		}
	})
}
