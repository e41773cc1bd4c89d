package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/plain"
	"pnode/planner/plan"
)

// nameOf returns what people call a member, clean.
func (v View) nameOf(p plan.PeerID) string { return printable(v.Status.NameOf(p)) }

// title names the run and what this node does in it.
func (v View) title() part {
	st := v.Status
	left, right := fmt.Sprintf("run %s on %s", printable(string(st.Run)), v.nameOf(st.Peer)), v.state()
	if st.Waiting != "" {
		right = span{"waiting", wary}
	}
	gap := max(2, v.Columns-width(left)-width(right.text))
	return part{lines: []line{{{cut(left, max(0, v.Columns-width(right.text)-2)), strong}, {strings.Repeat(" ", gap), plainly}, right}}}
}

// state says what this node does.
func (v View) state() span {
	switch s := v.Status.State; s {
	case "training":
		return span{s, good}
	case "waiting":
		if v.Status.Generation == 0 {
			return span{"before the first plan", plainly}
		}
		if v.placed() {
			return span{"re-planning", wary}
		}
		return span{"standby", plainly}
	case "loading":
		return span{"loading its layers", plainly}
	case "profiling":
		return span{"measuring this machine", plainly}
	case "draining":
		return span{"leaving", wary}
	case "serving":
		return span{"finished, staying for others", good}
	default:
		return span{printable(s), plainly}
	}
}

// placed reports whether the plan has a part for this node.
func (v View) placed() bool {
	for _, m := range v.Status.Roster {
		if m.Self {
			return m.Placed
		}
	}
	return false
}

// widestBar bounds the bar of steps.
const widestBar = 40

// progress shows how far the run is, and how fast.
func (v View) progress() part {
	st := v.Status
	steps := line{{fmt.Sprintf("step %d", st.Step), strong}}
	if st.Steps > 0 {
		steps = append(steps, span{fmt.Sprintf(" of %d ", st.Steps), plainly})
		done := min(1, float64(st.Step)/float64(st.Steps))
		percent := fmt.Sprintf(" %d%%", int(100*done))
		eta := ""
		if v.ETA > 0 && st.Waiting == "" {
			eta = ", " + plan.Duration((v.ETA + time.Second - 1).Truncate(time.Second)) + " left"
		}
		room := min(widestBar, v.Columns-width(steps[0].text+steps[1].text+percent+eta))
		if full := int(done * float64(room)); room >= 5 {
			steps = append(steps, span{strings.Repeat("█", full), good}, span{strings.Repeat("░", room-full), faint})
		}
		steps = append(steps, span{percent + eta, plainly})
	}
	var facts []string
	if st.Loss != nil {
		facts = append(facts, fmt.Sprintf("loss %.4f", *st.Loss))
	}
	if st.HeldOut != nil {
		facts = append(facts, fmt.Sprintf("held-out %.4f", *st.HeldOut))
	}
	if st.TokensPerS > 0 && st.Waiting == "" {
		facts = append(facts, plan.Number(int64(st.TokensPerS))+" tokens/s")
	}
	lines := []line{steps}
	if len(facts) > 0 {
		lines = append(lines, line{{strings.Join(facts, "   "), plainly}})
	}
	return part{lines: lines}
}

// mostWhy bounds the lines that say why nothing moves.
const mostWhy = 6

// trouble says why nothing moves, each command that helps on a line of its own; and that what is shown is not of now.
func (v View) trouble() part {
	var lines []line
	for _, text := range wrap(printable(v.Trouble), v.Columns) {
		lines = append(lines, line{{text, bad}})
	}
	texts, commands := v.apart(printable(v.Status.Waiting))
	for _, text := range wrap(texts, v.Columns) {
		lines = append(lines, line{{text, wary}})
	}
	lines = lines[:min(len(lines), mostWhy)]
	for _, c := range commands {
		for _, text := range c.pasted(v.Columns) {
			lines = append(lines, line{{text, strong}})
		}
	}
	return part{lines: lines}
}

// saved says how old the newest checkpoint is, and where the model is whole.
func (v View) saved() part {
	c, text := v.Status.Checkpoint, "checkpoint: none yet"
	if c.Step > 0 {
		text = fmt.Sprintf("checkpoint: step %d", c.Step)
		if !c.Time.IsZero() {
			text += fmt.Sprintf(", %s ago", plan.Duration(max(0, v.Now.Sub(c.Time)).Round(time.Second)))
		}
		if after := v.Status.Step - min(c.Step, v.Status.Step); after > 0 {
			text += fmt.Sprintf("; %s since then", plan.Count(int(after), "step"))
		}
	}
	lines := []line{{{text, plainly}}}
	if w := v.Status.Whole; w != nil {
		lines = append(lines, line{{"model: " + printable(w.Text), faint}})
	}
	return part{lines: lines}
}

// links shows what is between the stages that follow each other.
func (v View) links() part {
	var lines []line
	for _, l := range v.Status.Links {
		text := fmt.Sprintf("%s -> %s", v.nameOf(l.From), v.nameOf(l.To))
		if l.Transport != "" {
			text += " on " + printable(l.Transport.String())
		}
		if l.BytesPerS > 0 {
			text += ", " + plan.Bandwidth(l.BytesPerS)
		}
		if l.RTTMS > 0 {
			text += fmt.Sprintf(", %.0f ms", l.RTTMS)
		}
		lines = append(lines, line{{text, plainly}})
	}
	if v.Status.Rest != nil {
		for range min(1, v.Status.Rest.Links) {
			lines = append(lines, line{{fmt.Sprintf("%d more links", v.Status.Rest.Links), faint}})
		}
	}
	return headed("LINKS", lines)
}

// headed puts a heading over lines; without lines there is none.
func headed(heading string, lines []line) part {
	if len(lines) == 0 {
		return part{}
	}
	return part{
		lines: append([]line{{{heading, faint}}}, lines...), least: 2,
		more: func(left int) line { return line{{fmt.Sprintf("%d more", left), faint}} },
	}
}

// mostWritten bounds the lines of a text that the model has written.
const mostWritten = 6

// written shows the newest text that the model has written.
func (v View) written() part {
	for _, h := range slices.Backward(v.History.Happened) {
		if h.Event.Kind != api.KindSample {
			continue
		}
		var lines []line
		for text := range strings.Lines(h.Event.Message) {
			for _, one := range wrap(printable(text), v.Columns) {
				lines = append(lines, line{{one, plainly}})
			}
		}
		return headed(fmt.Sprintf("THE MODEL OF STEP %d WRITES", h.Event.Step), lines[:min(len(lines), mostWritten)])
	}
	return part{}
}

// newsKinds are the events that are worth a line, with their styles.
var newsKinds = map[api.Kind]style{
	api.KindPlan: plainly, api.KindSubstitute: wary, api.KindInterruption: plainly, api.KindRecovery: bad, api.KindWarning: wary, api.KindError: bad,
	api.KindMember: plainly, api.KindSpare: plainly, api.KindDrain: wary, api.KindDone: good,
}

// mostNews bounds the news.
const mostNews = 8

// news shows the newest events, the newest first: who came, who vanished, how many steps are done again.
func (v View) news() part {
	var lines []line
	told := 0
	for i := len(v.History.Happened) - 1; i >= 0 && told < mostNews; i-- {
		h := v.History.Happened[i]
		style, worth := newsKinds[h.Event.Kind]
		if !worth {
			continue
		}
		at := plain.Moment(h.Time.Local(), v.Now, time.TimeOnly) + " "
		lines = append(lines, v.hanging(line{{at, faint}}, printable(newsText(h.Event)), style)...)
		told++
	}
	p := headed("NEWS", lines)
	p.more = someMore
	return p
}

// why says why the plan is as it is, and what would help.
func (v View) why() part {
	var lines []line
	for _, r := range v.Status.Reasons {
		lines = append(lines, v.hanging(line{{"- ", faint}}, printable(r), plainly)...)
	}
	for _, h := range v.Status.Hints {
		lines = append(lines, v.hanging(line{{"- ", faint}}, "would help: "+printable(h), good)...)
	}
	p := headed("WHY THIS PLAN", lines)
	p.more = someMore
	return p
}

// newsText says an event in a few words.
func newsText(e api.Event) string {
	i := e.Interruption
	if e.Kind != api.KindInterruption || i == nil {
		return e.Message
	}
	text := fmt.Sprintf("going on from step %d after %.1f s", i.Last-min(i.Last, i.Redone), i.TotalS)
	if again := int(i.Redone) + int(i.Replayed); again > 0 {
		text += fmt.Sprintf(", %s repeated", plan.Count(again, "step"))
	}
	if i.Why != "" {
		text += ": " + i.Why
	}
	return text
}
