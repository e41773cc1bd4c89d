package screen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"pnode/node/api"
	"pnode/planner/plan"
)

// answers is a Source with one status.
type answers struct {
	status   api.Status
	err      error
	asking   []api.Newcomer
	admitted []string
	refused  []string
}

func (a *answers) BriefStatus(context.Context) (api.Status, error)   { return a.status, a.err }
func (a *answers) Newcomers(context.Context) ([]api.Newcomer, error) { return a.asking, nil }
func (a *answers) Admit(_ context.Context, code string) (string, error) {
	a.admitted = append(a.admitted, code)
	return "laptop may join", a.err
}

func (a *answers) Refuse(_ context.Context, code string) (string, error) {
	a.refused = append(a.refused, code)
	return a.asking[0].Refused(), a.err
}

func (a *answers) Invite(_ context.Context, r api.InviteRequest) (string, error) {
	if r != (api.InviteRequest{TTL: inviteTTL, Uses: 1}) {
		return "", fmt.Errorf("%+v", r)
	}
	return "pnode1-0123456789", a.err
}

func (a *answers) History(context.Context) (api.History, error) { return api.History{}, a.err }

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

// pressed returns a program to which a node was shown, and what presses a key of it and takes what comes of that in.
func pressed(t *testing.T, from *answers) (p *program, press func(key rune)) {
	t.Helper()
	p = &program{ctx: t.Context(), options: Options{Source: from}}
	p.Update(tea.WindowSizeMsg{Width: 80, Height: 60})
	p.Update(p.ask())
	return p, func(key rune) {
		if _, does := p.Update(tea.KeyPressMsg{Code: key, Text: string(key)}); does != nil {
			p.Update(does())
		}
	}
}

// TestKeysLetNewcomersIn: y the one that is shown, once it was to be seen for a while, and n nobody, whose request is not shown again.
func TestKeysLetNewcomersIn(t *testing.T) {
	attic, laptop := api.Newcomer{Name: "attic", Address: "192.0.2.8", Code: "111222"}, api.Newcomer{Name: "lap\x1b[2Jtop", Address: "192.0.2.7", Code: "482913"}
	from := &answers{status: api.Status{Run: "r", State: "training"}, asking: []api.Newcomer{attic, laptop}}
	p, press := pressed(t, from)
	press('y')
	if len(from.admitted) > 0 {
		t.Fatalf("a key that may be meant for another one lets %v in", from.admitted)
	}
	p.Update(p.ask())
	press('n')
	if got := p.View().Content; strings.Contains(got, "attic (") || !strings.Contains(got, "attic is not let in, and was told so") || !slices.Equal(from.refused, []string{"111222"}) {
		t.Errorf("after no: %q", got)
	}
	p.Update(p.ask())
	press('y')
	if len(from.admitted) > 0 {
		t.Fatalf("one that was not shown is let in: %v", from.admitted)
	}
	p.Update(p.ask())
	if got := p.View().Content; !strings.Contains(got, "lap\ufffd[2Jtop (192.0.2.7) asks to join. Only if it is yours, and its screen shows") || !strings.Contains(got, "482 913") {
		t.Errorf("it shows %q", got)
	}
	press('y')
	if got := p.View().Content; len(from.admitted) != 1 || from.admitted[0] != "482913" || !strings.Contains(got, "laptop may join") {
		t.Errorf("%v are let in: %q", from.admitted, got)
	}
	for range leastLooks { // the node may still show it
		p.Update(p.ask())
	}
	press('y')
	from.asking = nil
	p.Update(p.ask())
	press('y')
	if len(from.admitted) != 1 {
		t.Errorf("a key without a newcomer lets %v in", from.admitted)
	}
}

// TestAKeyThatRepeatsItselfIsMeantOnce: nothing is asked for twice before the node answers. Who was not let in is shown again.
func TestAKeyThatRepeatsItselfIsMeantOnce(t *testing.T) {
	from := &answers{status: api.Status{Run: "r", State: "training"}, asking: []api.Newcomer{{Name: "attic", Code: "111222"}, {Name: "laptop", Code: "482913"}}}
	p, press := pressed(t, from)
	look := func() {
		for range leastLooks {
			p.Update(p.ask())
		}
	}
	for _, key := range []string{"i", "y"} {
		look()
		does := p.press(key)
		look()
		if again, other := p.press(key), p.press("y"); does == nil || again != nil || other != nil {
			t.Fatalf("%s: it asks %v, %v and %v times", key, does != nil, again != nil, other != nil)
		}
		p.view.Invite = nil
		from.err = errors.New("not ready yet")
		p.Update(does())
		from.err = nil
	}
	look()
	press('y')
	if !slices.Equal(from.admitted, []string{"111222", "111222"}) || p.view.Newcomer != nil {
		t.Errorf("%v are asked for", from.admitted)
	}
}

// TestAKeyShowsAnInvite as text and as a code for a camera, where there is room, until the next key. Where none can be had it says why.
func TestAKeyShowsAnInvite(t *testing.T) {
	from := &answers{status: api.Status{Run: "r", State: "training"}}
	p, press := pressed(t, from)
	press('i')
	shown := p.View().Content
	if !strings.Contains(shown, "pnode1-0123456789") || !strings.Contains(shown, "█") || strings.Contains(shown, "run r") {
		t.Errorf("it shows\n%s", shown)
	}
	fits(t, p.view, shown)
	for columns := range 90 {
		p.Update(tea.WindowSizeMsg{Width: columns, Height: 10})
		fits(t, p.view, p.View().Content)
	}
	if shown = p.View().Content; !strings.Contains(shown, "Its QR code needs a window of ") || strings.Contains(shown, "█") {
		t.Errorf("on ten lines it shows\n%s", shown)
	}
	press('q')
	if shown = p.View().Content; p.key != 0 || !strings.Contains(shown, "run r") {
		t.Errorf("after a key it shows\n%s", shown)
	}
	from.err = errors.New("only desk can make invites")
	press('i')
	if shown = p.View().Content; !strings.Contains(shown, "no invite: only desk can make invites") {
		t.Errorf("it shows\n%s", shown)
	}
}
