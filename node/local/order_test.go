package local

import (
	"fmt"
	"strings"
	"testing"

	"pnode/node/api"
	"pnode/planner/plan"
)

// TestOrder: steps are written generation/step, "flush" gives up what is missing, and "-> "
// is what is shown then.
func TestOrder(t *testing.T) {
	for name, script := range map[string]string{
		"two nodes tell the same":        "1/1 1/2 1/1 1/2 1/3 -> 1/1 1/2 1/3",
		"a late node is heard too early": "1/1 1/4 1/5 1/2 1/3 -> 1/1 1/2 1/3 1/4 1/5",
		"nobody tells what is missing":   "1/1 1/4 1/6 flush 1/2 1/7 -> 1/1 1/4 1/6 1/7",
		"a generation goes back":         "1/1 1/2 1/3 2/2 1/4 2/3 2/2 2/4 -> 1/1 1/2 1/3 2/2 2/3 2/4",
		"a generation ends with a gap":   "1/1 1/3 2/4 1/2 -> 1/1 1/3 2/4",
		"a resumed run":                  "4/31 4/32 -> 4/31 4/32",
	} {
		t.Run(name, func(t *testing.T) {
			in, want, _ := strings.Cut(script, " -> ")
			var o order
			var shown []string
			for _, word := range strings.Fields(in) {
				turn := o.flush
				if word != "flush" {
					turn = func() []api.Event { return o.take(step(t, word)) }
				}
				for _, e := range turn() {
					shown = append(shown, fmt.Sprintf("%d/%d", e.Generation, e.Step))
				}
			}
			if got := strings.Join(shown, " "); got != want {
				t.Errorf("shown %s, want %s", got, want)
			}
		})
	}
}

func TestStepsAheadAreBounded(t *testing.T) {
	var o order
	shown := len(o.take(api.Event{Kind: api.KindStep, Generation: 1, Step: 1}))
	for i := range maxAhead + 1 {
		shown += len(o.take(api.Event{Kind: api.KindStep, Generation: 1, Step: plan.Step(10 + i)}))
	}
	if shown != maxAhead+2 || len(o.ahead) != 0 {
		t.Errorf("%d steps shown, %d wait", shown, len(o.ahead))
	}
}

func step(t *testing.T, word string) api.Event {
	t.Helper()
	e := api.Event{Kind: api.KindStep}
	if _, err := fmt.Sscanf(word, "%d/%d", &e.Generation, &e.Step); err != nil {
		t.Fatalf("%q: %v", word, err)
	}
	return e
}
