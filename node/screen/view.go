package screen

import (
	"strings"
	"time"

	"pnode/node/api"
)

// View holds what is shown.
type View struct {
	Status api.Status
	// Dir is the folder of the node that is asked. Commands for it are shown to be pasted; without it none are.
	Dir     string
	History api.History
	// Now dates checkpoints and events.
	Now time.Time
	// ETA is the time to the last step; 0 is unknown.
	ETA time.Duration
	// Trouble says why Status is not of now; empty where it is.
	Trouble string
	// Newcomer is a machine of the local network that asks to join; nil for none.
	Newcomer *api.Newcomer
	// Said is what came of a key.
	Said string
	// Invite, unless nil, is shown in place of the run.
	Invite *Invite
	// Keys says what keys do.
	Keys string
	// Columns and Lines are the size of the terminal.
	Columns, Lines int
	Colour         bool
}

// part is a few lines that belong together.
type part struct {
	lines []line
	// least are the lines that it is worth showing with; fewer are none.
	least int
	// more returns what stands in place of the lines that find no room; nil: they are left out.
	more func(left int) line
	// joined says that it goes on what stands above: no empty line comes between.
	joined bool
}

// someMore stands for lines of text that find no room.
func someMore(int) line { return line{{"…", faint}} }

// hanging breaks a clean text into lines, the first one after a lead and the others below its text.
func (v View) hanging(lead line, text string, s style) (lines []line) {
	indent := 0
	for _, part := range lead {
		indent += width(part.text)
	}
	if indent > v.Columns/2 {
		indent = 0
	}
	for i, one := range wrap(text, v.Columns-indent) {
		if i > 0 {
			lead = line{{strings.Repeat(" ", indent), plainly}}
		}
		lines = append(lines, append(lead[:len(lead):len(lead)], span{one, s}))
	}
	return lines
}

// Render draws a view, in at most Lines lines of at most Columns cells, the last one without an end.
func Render(v View) string {
	if v.Columns <= 0 || v.Lines <= 0 {
		return ""
	}
	if v.Invite != nil {
		return v.invitation()
	}
	parts := []part{v.title(), v.progress(), v.trouble(), v.door(), v.curve(), v.saved(), v.nodes(), v.unusual(), v.links(), v.written(), v.news(), v.why()}
	// Where there is little room, the first ones in this order have it.
	shown := v.share(parts, []int{0, 1, 3, 2, 6, 7, 4, 5, 10, 9, 8, 11})
	var b strings.Builder
	for i, l := range shown {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(l.draw(v.Columns, v.Colour))
	}
	return b.String()
}

// share gives parts their lines, and the last line of the terminal to the keys.
func (v View) share(parts []part, order []int) []line {
	room, keys := v.Lines, line(nil)
	if room > 2 && v.Keys != "" {
		keys = line{{printable(v.Keys), faint}}
		room--
	}
	given := make([]int, len(parts))
	for _, i := range order {
		p := parts[i]
		if n := min(len(p.lines), room); n >= min(p.least, len(p.lines)) {
			given[i] = n
			room -= n
		}
	}
	var shown []line
	for i, p := range parts {
		n := given[i]
		lines := p.lines[:n]
		if left := len(p.lines) - n; left > 0 && n > 0 && p.more != nil {
			lines = append(append([]line(nil), p.lines[:n-1]...), p.more(left+1))
		}
		if len(lines) > 0 && i > 1 && room > 0 && len(shown) > 0 && !p.joined { // an empty line where there is room to spare
			shown = append(shown, nil)
			room--
		}
		shown = append(shown, lines...)
	}
	if keys != nil {
		shown = append(shown, keys)
	}
	return shown
}
