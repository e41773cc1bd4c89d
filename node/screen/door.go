package screen

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"pnode/node/api"
	"pnode/node/plain"
	"pnode/node/qrcode"
)

// inviteTTL is how long an invite is good that is shown here, for one node.
const inviteTTL = 24 * time.Hour

// leastLooks are the answers of the node for which a newcomer is shown before a key lets it in: the key is not meant for the one before it.
const leastLooks = 2

// Invite is one to the run.
type Invite struct {
	Text string
	// Plain and Coloured draw it as a QR code, for a camera.
	Plain, Coloured []string
}

// invited and admitted say what came of a key.
type (
	invited struct {
		invite *Invite // nil where it failed
		failed string
	}
	admitted struct {
		code, said string
		failed     bool
	}
)

// press does what a key asks for.
func (p *program) press(key string) tea.Cmd {
	switch {
	case key == "ctrl+c":
		p.key = KeyInterrupt
		return tea.Quit
	case p.view.Invite != nil: // any other key
		p.view.Invite = nil
		return nil
	}
	n := p.view.Newcomer
	switch key {
	case "q", "esc":
		p.key = KeyQuit
		return tea.Quit
	case "i":
		if !p.busy { // a key that repeats itself is meant once
			p.busy = true
			return p.invite
		}
	case "y":
		if n != nil && p.looks >= leastLooks && !p.busy {
			p.busy, p.settled[n.Code], p.view.Newcomer = true, true, nil
			return func() tea.Msg { return p.admit(*n) }
		}
	case "n":
		if n != nil && p.looks >= leastLooks && !p.busy {
			p.busy, p.settled[n.Code], p.view.Newcomer = true, true, nil
			return func() tea.Msg { return p.refuse(*n) }
		}
	}
	return nil
}

// meet shows the first of those who ask to join for whom no key was pressed.
func (p *program) meet(asking []api.Newcomer) {
	if p.settled == nil {
		p.settled = map[string]bool{}
	}
	before := p.view.Newcomer
	p.view.Newcomer = nil
	for _, n := range asking {
		if !p.settled[n.Code] {
			p.view.Newcomer = &n
			break
		}
	}
	if now := p.view.Newcomer; now == nil || before == nil || now.Code != before.Code {
		p.looks = 0
	}
	p.looks++
}

// admit lets a newcomer in.
func (p *program) admit(n api.Newcomer) tea.Msg {
	done, err := p.options.Source.Admit(p.ctx, n.Code)
	if err != nil {
		done = "not let in: " + plain.Text(err)
	}
	return admitted{n.Code, done, err != nil}
}

// refuse has a newcomer told that it is not let in.
func (p *program) refuse(n api.Newcomer) tea.Msg {
	done, err := p.options.Source.Refuse(p.ctx, n.Code)
	if err != nil {
		done = fmt.Sprintf("%s is not let in, and could not be told: %s", n.Name, plain.Text(err))
	}
	return admitted{n.Code, done, false}
}

// invite makes an invite for one node.
func (p *program) invite() tea.Msg {
	text, err := p.options.Source.Invite(p.ctx, api.InviteRequest{TTL: inviteTTL, Uses: 1})
	if err != nil {
		return invited{failed: "no invite: " + plain.Text(err)}
	}
	i := &Invite{Text: text}
	for lines, coloured := range map[*[]string]bool{&i.Plain: false, &i.Coloured: true} {
		drawn, err := qrcode.Terminal(text, coloured)
		if err != nil { // the text is there
			continue
		}
		*lines = strings.Split(strings.TrimRight(drawn, "\n"), "\n")
	}
	return invited{invite: i}
}

// door says who asks to join and what lets it in, and what came of the last key.
func (v View) door() part {
	var lines []line
	add := func(text string, s style) {
		for _, one := range wrap(printable(text), v.Columns) {
			lines = append(lines, line{{one, s}})
		}
	}
	if v.Newcomer != nil {
		add(v.Newcomer.Question()+" y lets it in, n does not", strong)
	}
	if v.Said != "" {
		add(v.Said, plainly)
	}
	return part{lines: lines}
}

// invitation draws an invite in place of the run.
func (v View) invitation() string {
	shown := []string{"For one machine, within 24 hours: pnode join, and this text. Whoever has it can join."}
	shown = append(shown, wrap(printable(v.Invite.Text), v.Columns)...)
	code := v.Invite.Plain
	room := v.Lines - len(shown) - 1
	switch {
	case len(code) == 0:
	case len(code) > room || width(code[0]) > v.Columns:
		shown = append(shown, fmt.Sprintf("Its QR code needs a window of %d columns and %d lines.", width(code[0]), len(code)+len(shown)+1))
	case v.Colour:
		shown = append(shown, v.Invite.Coloured...)
	default:
		shown = append(shown, code...)
	}
	shown = append(shown, "any key: back")
	var b strings.Builder
	for i, text := range shown[:min(len(shown), v.Lines)] {
		if i > 0 {
			b.WriteByte('\n')
		}
		if !strings.HasPrefix(text, "\x1b") {
			text = cut(text, v.Columns)
		}
		b.WriteString(text)
	}
	return b.String()
}
