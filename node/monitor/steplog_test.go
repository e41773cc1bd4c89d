package monitor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pnode/node/api"
	"pnode/planner/plan"
)

// TestStepLog runs scripts of a node's life. "begin 2/29" is a generation from a step on,
// "late 2/35" the first that a node hears of one that it came too late for, "own" are steps of
// its workers, "read" those of another node's log, "give up" ends waiting. What is shown
// at once follows "->".
func TestStepLog(t *testing.T) {
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
			var shown []api.Event
			c := stepLog{publish: func(e api.Event) { shown = append(shown, e) }}
			for line := range strings.Lines(strings.TrimSpace(script)) {
				said, want, _ := strings.Cut(strings.TrimSpace(line), "->")
				word, rest, _ := strings.Cut(strings.TrimSpace(said), " ")
				shown = nil
				carryOut(t, &c, word, rest)
				if got := spell(shown); got != strings.TrimSpace(want) {
					t.Errorf("%s: shown %q", strings.TrimSpace(line), got)
				}
			}
		})
	}
}

func carryOut(t *testing.T, c *stepLog, word, rest string) {
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
		c.begin(positionOf(events[0]))
	case "late":
		c.beginLate(positionOf(events[0]))
	case "own":
		for _, e := range events {
			c.report(e)
		}
	case "read":
		c.merge(events)
	case "give":
		c.giveUp()
	default:
		t.Fatalf("what is %q?", word)
	}
}

func spell(events []api.Event) string {
	var words []string
	for _, e := range events {
		words = append(words, fmt.Sprintf("%d/%d", e.Generation, e.Step))
	}
	return strings.Join(words, " ")
}

func TestAStepLogIsBounded(t *testing.T) {
	shown := 0
	c := stepLog{publish: func(api.Event) { shown++ }}
	c.begin(position{1, 0})
	for i := range 3 * maxLogged {
		c.report(api.Event{Kind: api.KindStep, Generation: 1, Step: plan.Step(i + 1)})
	}
	all, some := c.since(position{}), c.since(position{1, 3*maxLogged - 2})
	if len(all) != maxLogged || len(some) != 2 || some[0].Step != 3*maxLogged-1 {
		t.Errorf("%d steps are kept, after the last but two %s", len(all), spell(some))
	}
	c.begin(position{2, 4 * maxLogged})
	shown = 0
	for i := range maxLogged {
		c.report(api.Event{Kind: api.KindStep, Generation: 2, Step: plan.Step(4*maxLogged + i + 1)})
	}
	if shown != maxLogged || c.owed != 0 {
		t.Errorf("%d steps of the generation after a gap are shown, owed is %d", shown, c.owed)
	}
}

// TestOnlyStepsAreRead of another node's log: people see what they say.
func TestOnlyStepsAreRead(t *testing.T) {
	for _, list := range []string{
		`[{"kind":"outer","step":2,"outer":{"text":"of a liar"}}]`,
		`[{"kind":"step","step":2,"outer":{"text":"of a liar"}}]`,
		`[{"kind":"step","step":2,"message":"of a liar"}]`,
		`[{"kind":"step","step":2,"interruption":{}}]`,
	} {
		if events, err := decodeSteps([]byte(list)); !errors.Is(err, errBadSteps) {
			t.Errorf("%s: %+v, %v", list, events, err)
		}
	}
}

func FuzzSteps(f *testing.F) {
	f.Add([]byte(`[{"kind":"step","generation":1,"step":2,"loss":3.5,"outer":{"from":1,"replicas":[{"norm":1}]}}]`))
	f.Add([]byte(`[{"kind":"step","generation":1,"step":2,"loss":3.5},{"kind":"step","generation":2,"step":1,"loss":null,"held_out":2.5}]`))
	f.Add([]byte(`[{"kind":"done"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := decodeSteps(data)
		if err != nil {
			return
		}
		var shown []api.Event
		c := stepLog{publish: func(e api.Event) { shown = append(shown, e) }}
		c.begin(position{})
		c.merge(events)
		for i, e := range shown {
			if i > 0 && positionOf(shown[i-1]).compare(positionOf(e)) >= 0 {
				t.Fatalf("out of order: %s", spell(shown))
			}
		}
		if len(c.kept) > maxLogged {
			t.Fatalf("%d steps are kept", len(c.kept))
		}
	})
}

// TestSchedulesAreToldWithoutOrders: an order has a letter for each pass, which nobody reads.
func TestSchedulesAreToldWithoutOrders(t *testing.T) {
	ordered := func(order string) plan.ScheduleChoice {
		return plan.ScheduleChoice{Schedule: "zb-elastic:order=" + order}
	}
	for _, c := range []struct {
		to   plan.ScheduleChoice
		left string
		want string
	}{
		{plan.ScheduleChoice{Schedule: "1f1b", Warmups: [][]int{{2, 1}}}, ordered("FIW").String(), "1f1b 2,1 instead of zb-elastic"},
		{ordered("FIW"), ordered("FIFIWW").String(), "zb-elastic in other orders"},
		{ordered("FIW"), "what a liar says", "zb-elastic"},
	} {
		if got := otherSchedule(c.to, c.left); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
