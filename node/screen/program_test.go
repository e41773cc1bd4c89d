package screen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"pnode/node/api"
	"pnode/planner/plan"
)

// answers is a Source with one status.
type answers struct {
	status api.Status
	err    error
}

func (a *answers) BriefStatus(context.Context) (api.Status, error) { return a.status, a.err }
func (a *answers) History(context.Context) (api.History, error)    { return api.History{}, a.err }

// TestAProgramAsksUntilAKeyOrTheEnd: what is known stays while a node does not answer, and the view ends with its node.
func TestAProgramAsksUntilAKeyOrTheEnd(t *testing.T) {
	from := &answers{status: api.Status{Run: "r", State: "training", Step: 7, Steps: 9}}
	p := &program{ctx: t.Context(), options: Options{Source: from}}
	shows := func(want string) {
		t.Helper()
		if got := p.View().Content; !strings.Contains(got, want) || !p.View().AltScreen {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	shows("asking the node")
	p.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	if _, next := p.Update(p.Init()()); next == nil {
		t.Fatal("it does not ask again")
	}
	shows("step 7 of 9")
	from.err = fmt.Errorf("%w: busy", api.ErrUnreachable)
	p.Update(p.ask())
	shows("step 7 of 9")
	shows("the node does not answer: ")
	for key, want := range map[rune]Key{'q': KeyQuit, 'c': KeyInterrupt, 'x': 0} {
		p.key = 0
		press := tea.KeyPressMsg{Code: key, Text: string(key)}
		if key == 'c' {
			press = tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
		}
		if _, quits := p.Update(press); p.key != want || (quits != nil) != (want != 0) {
			t.Errorf("%v: %v, want %v", press, p.key, want)
		}
	}
	from.err = api.ErrNoNode
	if _, quits := p.Update(p.ask()); quits == nil || !errors.Is(p.err, api.ErrNoNode) {
		t.Errorf("after the end of the node: %v", p.err)
	}
}

// TestTheTimeLeftOutlivesPauses: a pause of two minutes does not count for the steps to come.
func TestTheTimeLeftOutlivesPauses(t *testing.T) {
	p, now := &program{ctx: t.Context()}, time.Unix(1000, 0)
	for s := range 60 {
		now = now.Add(3 * time.Second)
		if s == 55 {
			now = now.Add(2 * time.Minute)
		}
		p.take(answer{status: api.Status{Generation: 1, Step: plan.Step(s + 1), Steps: 100, ETAS: 1e6}, at: now})
	}
	if want := 40 * 3 * time.Second; (p.view.ETA - want).Abs() > 2*time.Second {
		t.Errorf("%v are left, want %v", p.view.ETA, want)
	}
}
