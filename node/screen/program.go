package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"

	"pnode/node/api"
	"pnode/node/plain"
	"pnode/node/progress"
)

// every is the time between two questions to the node.
const every = time.Second

// Source answers what is shown: a client of a node's API.
type Source interface {
	BriefStatus(ctx context.Context) (api.Status, error)
	History(ctx context.Context) (api.History, error)
	Newcomers(ctx context.Context) ([]api.Newcomer, error)
	Admit(ctx context.Context, code string) (string, error)
	Refuse(ctx context.Context, code string) (string, error)
	Invite(ctx context.Context, r api.InviteRequest) (string, error)
}

// Options say what to show, and where.
type Options struct {
	Source Source
	// Dir is the folder of that node, in full.
	Dir    string
	In     io.Reader
	Out    io.Writer
	Colour bool
	// Keys says at the foot what keys do.
	Keys string
}

// Columns returns how many cells a line of a terminal has, 0 for what is none.
func Columns(w io.Writer) int {
	f, ok := w.(term.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(f.Fd())
	if err != nil {
		return 0
	}
	return columns
}

// Key says what ended a view.
type Key int

// What ends a view. The zero value is none: its context ended, or its node.
const (
	KeyQuit      Key = iota + 1 // q
	KeyInterrupt                // Ctrl-C, which reaches no signal handler while a view has the terminal
)

// Run shows a run until a key ends the view, the node does, or ctx. The terminal is as it was before when Run returns. The error of a node
// that does not answer any more is that of its client.
func Run(ctx context.Context, o Options) (Key, error) {
	first := &program{ctx: ctx, options: o}
	p := tea.NewProgram(first, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler())
	_, err := p.Run()
	if ctx.Err() != nil { // bubbletea calls this killed
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("screen: %w", err)
	}
	return first.key, first.err
}

// program is a tea.Model.
type program struct {
	ctx     context.Context
	options Options
	view    View
	pace    progress.Pace
	key     Key
	err     error           // ends it
	asked   bool            // a first answer has come
	settled map[string]bool // the codes of newcomers for whom a key was pressed
	looks   int             // at the newcomer that is shown
	busy    bool            // the node is asked for what a key wants
}

// answer holds what a node said.
type answer struct {
	status  api.Status
	history api.History
	asking  []api.Newcomer
	err     error
	at      time.Time
}

// due says that it is time to ask again.
type due struct{}

// Init asks the first time.
func (p *program) Init() tea.Cmd { return p.ask }

func (p *program) ask() tea.Msg {
	st, err := p.options.Source.BriefStatus(p.ctx)
	if err != nil {
		return answer{err: err, at: time.Now()}
	}
	h, err := p.options.Source.History(p.ctx)
	asking, _ := p.options.Source.Newcomers(p.ctx) // a node without --lan has none, and says so
	return answer{st, h, asking, err, time.Now()}
}

// Update takes in a key, a size or an answer.
func (p *program) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.KeyPressMsg:
		return p, p.press(m.String())
	case tea.WindowSizeMsg:
		p.view.Columns, p.view.Lines = m.Width, m.Height
	case due:
		return p, p.ask
	case invited:
		p.busy, p.view.Invite, p.view.Said = false, m.invite, m.failed
	case admitted:
		p.busy, p.view.Said = false, m.said
		if m.failed { // people may try again
			delete(p.settled, m.code)
		}
	case answer:
		if errors.Is(m.err, api.ErrNoNode) {
			p.err = m.err
			return p, tea.Quit
		}
		p.take(m)
		return p, tea.Tick(every, func(time.Time) tea.Msg { return due{} })
	}
	return p, nil
}

// take shows an answer. Where there is none, what was known stays, with why.
func (p *program) take(a answer) {
	v := &p.view
	v.Now, v.Dir, v.Keys, v.Colour = a.at, p.options.Dir, p.options.Keys, p.options.Colour
	if v.Trouble = ""; a.err != nil {
		v.Trouble = "the node does not answer: " + plain.Text(a.err)
		return
	}
	if newer := a.status.Step != v.Status.Step || a.status.Generation != v.Status.Generation || !p.asked; newer {
		v.ETA = p.pace.Remaining(api.Event{Generation: a.status.Generation, Step: a.status.Step, Steps: a.status.Steps}, a.at)
		if v.ETA == 0 { // the node's own guess, until steps were seen for a while
			v.ETA = time.Duration(a.status.ETAS * float64(time.Second))
		}
	}
	v.Status, v.History, p.asked = a.status, a.history, true
	p.meet(a.asking)
}

// View draws.
func (p *program) View() tea.View {
	text := "asking the node ..."
	if p.asked || p.view.Trouble != "" {
		text = Render(p.view)
	}
	v := tea.NewView(text)
	v.AltScreen = true
	return v
}
