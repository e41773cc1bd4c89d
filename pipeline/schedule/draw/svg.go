package draw

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"pnode/pipeline/schedule"
)

// ErrTooLarge is wrapped by the error about timelines with more than MaxSpans actions.
var ErrTooLarge = errors.New("draw: too large")

// MaxSpans bounds the actions of a picture.
const MaxSpans = 1 << 17

// Panel is one timeline of a picture.
type Panel struct {
	Title string
	// Notes are lines below the title.
	Notes []string
	// Names of the workers; those that are missing get a number.
	Names []string
	Line  schedule.Timeline
	// Segments is Schedule.Segments: micro-batches are then labelled sequence.segment.
	Segments int
}

// Sizes in pixels.
const (
	margin     = 16
	leastName  = 118
	mostName   = 300
	noteWidth  = 112 // figures behind a row
	rowHeight  = 28
	leastChart = 760
	mostChart  = 6000
	barWidth   = 17 // of the usual action
	mostWidths = 4  // of usual actions, for each action of a row
	glyphWidth = 6.3
	lineHeight = 18
)

// SVG writes the panels below each other, in one scale of time.
func SVG(w io.Writer, panels ...Panel) error {
	spans := 0
	for _, p := range panels {
		for _, row := range p.Line.Workers {
			spans += len(row)
		}
	}
	if spans > MaxSpans {
		return fmt.Errorf("%w: %d actions, at most %d are drawn: ask for fewer micro-batches", ErrTooLarge, spans, MaxSpans)
	}
	p := newPicture(panels)
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, 'DejaVu Sans', sans-serif">`+"\n", p.width, p.height, p.width, p.height)
	out.WriteString(style)
	fmt.Fprintf(out, `<rect class="paper" width="%d" height="%d"/>`+"\n", p.width, p.height)
	p.y += p.place(func(e entry, x, y int) {
		fmt.Fprintf(out, `<g transform="translate(%d %d)">%s<text class="legend" x="28" y="11">%s</text></g>`+"\n", x, p.y+y, e.sign, e.name)
	})
	for i := range panels {
		p.panel(out, &panels[i])
	}
	out.WriteString("</svg>\n")
	return out.Flush()
}

// picture is the layout of all panels.
type picture struct {
	panels        []Panel
	width, height int
	names         int // pixels of the longest name
	chart         int // pixels of the longest makespan
	end           schedule.Nanos
	tick, unit    schedule.Nanos
	unitName      string
	y             int // of the next thing to draw
}

func newPicture(panels []Panel) *picture {
	p := &picture{panels: panels, end: 1, names: leastName}
	actions := 0 // of the row that has most
	for _, panel := range panels {
		p.end = max(p.end, panel.Line.Makespan)
		for _, row := range panel.Line.Workers {
			actions = max(actions, len(row))
		}
		for _, name := range panel.Names {
			p.names = min(max(p.names, int(float64(utf8.RuneCountInString(name))*7.2)+12), mostName)
		}
	}
	// Where most actions are short and one is long, the long one is what there is to see.
	p.chart = max(min(int(int64(p.end)*barWidth/int64(p.usual())), mostWidths*barWidth*actions, mostChart), leastChart)
	p.width = p.names + p.chart + noteWidth + 2*margin
	p.tick, p.unit, p.unitName = ticks(p.end, p.chart/90)
	p.height = margin + p.place(func(entry, int, int) {})
	for i := range panels {
		p.height += p.panelHeight(&panels[i])
	}
	p.y = margin
	return p
}

// usual is the median time of an action.
func (p *picture) usual() schedule.Nanos {
	var all []schedule.Nanos
	for _, panel := range p.panels {
		for _, row := range panel.Line.Workers {
			for _, s := range row {
				if s.End > s.Start {
					all = append(all, s.End-s.Start)
				}
			}
		}
	}
	if len(all) == 0 {
		return 1
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func (p *picture) x(t schedule.Nanos) float64 {
	return margin + float64(p.names) + float64(t)*float64(p.chart)/float64(p.end)
}

// gap is the room between rows: for arrows if there are any.
func (p Panel) gap() int {
	if len(p.Line.Messages) > 0 {
		return 24
	}
	return 8
}

func (p *picture) panelHeight(panel *Panel) int {
	return 30 + lineHeight*len(panel.Notes) + len(panel.Line.Workers)*(rowHeight+panel.gap()) + 2*lineHeight + margin
}

func (p *picture) panel(out *bufio.Writer, panel *Panel) {
	fmt.Fprintf(out, `<text class="title" x="%d" y="%d">%s</text>`+"\n", margin, p.y+16, escape(panel.Title))
	for i, note := range panel.Notes {
		fmt.Fprintf(out, `<text class="note" x="%d" y="%d">%s</text>`+"\n", margin, p.y+34+i*lineHeight, escape(note))
	}
	top := p.y + 30 + lineHeight*len(panel.Notes)
	step := rowHeight + panel.gap()
	bottom := top + step*len(panel.Line.Workers)
	p.axis(out, top, bottom)
	rowY := func(w int) int { return top + w*step }
	waits := panel.Line.Waits()
	for w := range panel.Line.Workers {
		p.waits(out, waits[w], rowY(w))
	}
	for _, m := range panel.Line.Messages {
		p.arrow(out, panel, m, rowY)
	}
	for w, row := range panel.Line.Workers {
		p.row(out, panel, w, row, rowY(w))
	}
	p.y += p.panelHeight(panel)
}

// axis draws the time below the rows and a line through them at each tick.
func (p *picture) axis(out *bufio.Writer, top, bottom int) {
	for t := schedule.Nanos(0); t <= p.end; t += p.tick {
		x := short(p.x(t))
		label := strconv.FormatFloat(float64(t)/float64(p.unit), 'f', -1, 64)
		if t == 0 {
			label = "0 " + p.unitName
		}
		fmt.Fprintf(out, `<path class="grid" d="M%s %dV%d"/><text class="tick" x="%s" y="%d">%s</text>`+"\n", x, top-4, bottom, x, bottom+14, label)
	}
}

func (p *picture) waits(out *bufio.Writer, waits []schedule.Wait, y int) {
	for _, w := range waits {
		if w.Exposed > w.Start {
			p.box(out, "idle", w.Start, w.Exposed, y, "")
		}
		if w.End > w.Exposed {
			p.box(out, "exposed", w.Exposed, w.End, y, "waits for a message, "+p.time(w.End-w.Exposed))
		}
	}
}

func (p *picture) box(out *bufio.Writer, class string, from, to schedule.Nanos, y int, tip string) {
	x := p.x(from)
	fmt.Fprintf(out, `<rect class="%s" x="%s" y="%d" width="%s" height="%d"`, class, short(x), y, short(p.x(to)-x), rowHeight)
	if tip == "" {
		out.WriteString("/>\n")
		return
	}
	fmt.Fprintf(out, `><title>%s</title></rect>`+"\n", escape(tip))
}

// arrow draws a message from its sender's row to its receiver's.
func (p *picture) arrow(out *bufio.Writer, panel *Panel, m schedule.Message, rowY func(int) int) {
	from, to := rowY(m.From)+rowHeight, rowY(m.To)
	if m.To < m.From {
		from, to = rowY(m.From), rowY(m.To)+rowHeight
	}
	class := "activation"
	if m.Action.Op == schedule.ReceiveGradient {
		class = "gradient"
	}
	fmt.Fprintf(out, `<path class="%s" d="M%s %dL%s %d"><title>%s: made at %s, there after %s</title></path>`+"\n",
		class, short(p.x(m.Queued)), from, short(p.x(m.Arrived)), to, m.Action, p.time(m.Queued), p.time(m.Arrived-m.Queued))
}

// row draws a worker's name, bars and figures.
func (p *picture) row(out *bufio.Writer, panel *Panel, w int, spans []schedule.Span, y int) {
	name := fmt.Sprintf("worker %d", w)
	if w < len(panel.Names) && panel.Names[w] != "" {
		name = panel.Names[w]
	}
	if most := mostName / 7; utf8.RuneCountInString(name) > most {
		name = string([]rune(name)[:most-1]) + "…"
	}
	fmt.Fprintf(out, `<text class="name" x="%d" y="%d">%s</text>`+"\n", margin, y+18, escape(name))
	held := holdings(spans)
	for _, s := range spans {
		if s.End > s.Start {
			p.bar(out, panel, s, slices.Index(held, holding(s.Action)), y)
		}
	}
	figures := fmt.Sprintf("%.0f%% busy", 100-100*float64(panel.Line.Idle(w))/float64(max(panel.Line.Makespan, 1)))
	if w < len(panel.Line.PeakLive) {
		figures += fmt.Sprintf(", %d live", panel.Line.PeakLive[w])
	}
	fmt.Fprintf(out, `<text class="figures" x="%s" y="%d">%s</text>`+"\n", short(p.x(p.end)+8), y+18, figures)
}

func (p *picture) bar(out *bufio.Writer, panel *Panel, s schedule.Span, held, y int) {
	x, width := p.x(s.Start), p.x(s.End)-p.x(s.Start)
	fmt.Fprintf(out, `<rect class="bar %s" x="%s" y="%d" width="%s" height="%d"><title>%s, %s from %s</title></rect>`,
		barClass(s.Action.Op, held), short(x), y, short(max(width-0.8, 0.5)), rowHeight, s.Action, p.time(s.End-s.Start), p.time(s.Start))
	label := label(s.Action, panel.Segments)
	if float64(len(label))*glyphWidth+2 <= width {
		fmt.Fprintf(out, `<text class="micro" x="%s" y="%d">%s</text>`, short(x+width/2), y+18, label)
	}
	out.WriteByte('\n')
}

// label returns the text in a bar: the micro-batch, or the op where there is none.
func label(a schedule.Action, segments int) string {
	switch {
	case a.Op == schedule.Step || a.Op == schedule.Reduce || a.Op == schedule.Gather:
		return strings.ToLower(a.Op.String())
	case segments > 1:
		return fmt.Sprintf("%d.%d", int(a.Micro)/segments, int(a.Micro)%segments)
	}
	return strconv.Itoa(int(a.Micro))
}

// holding is the (replica, stage) of an action.
func holding(a schedule.Action) [2]int { return [2]int{int(a.Replica), int(a.Stage)} }

// holdings lists the stages that a worker computes, in ascending order.
func holdings(spans []schedule.Span) [][2]int {
	var held [][2]int
	for _, s := range spans {
		if s.Action.Op != schedule.Step && !slices.Contains(held, holding(s.Action)) {
			held = append(held, holding(s.Action))
		}
	}
	slices.SortFunc(held, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return held
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}

// short is a coordinate to a tenth of a pixel.
func short(x float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
}
