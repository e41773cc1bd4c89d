package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

const (
	// columns is how wide a text gets.
	columns = 96
	// mostModel and mostNode are the letters of a device's model and a node's name in a table.
	mostModel = 16
	mostNode  = 12
)

// Text writes the report for people, with a line for each device.
func (r Report) Text(w io.Writer) error {
	return r.write(w, r.table, r.leftOut(), r.Notes)
}

// write puts a text together: with a table of devices, lines of those left out, and notes.
func (r Report) write(w io.Writer, table func(*strings.Builder), leftOut [][]string, notes []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s of %s on %s of %s, schedule %s", r.Model,
		plan.Count(r.Replicas, "replica"), plan.Count(r.Stages, "stage"), plan.Number(r.Used), plan.Count(r.All, "device"), shortly(r.Schedule))
	if r.Every > 0 {
		fmt.Fprintf(&b, ", local steps: replicas meet every %d", r.Every)
	}
	b.WriteString("\n\n")
	table(&b)
	b.WriteString("\n")
	r.summary(&b)
	r.sections(&b, leftOut)
	if len(notes) > 0 {
		b.WriteString("\nNotes\n")
	}
	for _, note := range notes {
		for i, line := range wrap(note, columns-4) {
			b.WriteString([]string{"- ", "  "}[min(i, 1)] + line + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes a line for each device.
func (r Report) table(b *strings.Builder) {
	lines := [][]string{{"rep", "node", "device", "layers", "memory", "micro-batch", "in flight", "next stage over"}}
	for _, d := range r.Devices {
		lines = append(lines, []string{
			join(d.Replicas, "+"), clip(d.Node, mostNode), d.short(), d.layers(), of(d.NeedBytes, d.TotalBytes),
			d.micro(), join(d.InFlight, "+"), d.sends(),
		})
	}
	if r.Replicas == 1 {
		for i := range lines {
			lines[i] = lines[i][1:]
		}
	}
	writeTable(b, lines)
}

// micro says how long a micro-batch takes, and how many there are.
func (d Device) micro() string {
	return fmt.Sprintf("%s x %d", plan.Time(schedule.Nanos(d.MicroNanos)), d.Micros)
}

// short returns the title on few letters, which keep which one of the node's devices it is.
func (d Device) short() string {
	which := strings.TrimPrefix(d.Title, d.product)
	return clip(d.product, max(mostModel-len(which), 2)) + which
}

// layers lists the device's layers, from first to last of each stage.
func (d Device) layers() string {
	var parts []string
	for _, l := range d.Layers {
		parts = append(parts, l.String())
	}
	return strings.Join(parts, ",")
}

// sends says how the device's first stage sends on, "-" where it does not.
func (d Device) sends() string {
	if d.Codec == "" {
		return "-"
	}
	return fmt.Sprintf("%s %s %s", d.Codec, plan.Bandwidth(d.BytesPerS), millis(d.RTTNanos))
}

// summary writes the figures of the step.
func (r Report) summary(b *strings.Builder) {
	share := func(permille int64) string { return plan.Permille(permille) }
	sequences := fmt.Sprintf("%s of %s", plan.Count(r.Micros, "micro-batch"), plan.Count(r.MicroBatch, "sequence"))
	lines := [][]string{
		{"step", fmt.Sprintf("%s for %s tokens (%s of %d)", plan.Time(schedule.Nanos(r.StepNanos)), plan.Number(r.StepTokens), sequences, r.Context)},
		{"tokens/s", rate(r.TokensPerS)},
		{plan.Number(r.Steps) + " steps", plan.Duration(r.EndNanos) + ", if no node is lost"},
		{"computing", share(r.Spent.Computing) + " of the time of these devices"},
		{"bubble", share(r.Spent.Bubble) + ", waits while the pipeline fills and drains, and for slower devices"},
		{"messages", share(r.Spent.Exposed) + " that nothing hides"},
		{"update", share(r.Spent.Update)},
		{"bound by", ""},
	}
	bound := wrap(r.Bound, columns-13)
	lines[len(lines)-1][1] = bound[0]
	for _, more := range bound[1:] {
		lines = append(lines, []string{"", more})
	}
	writeTable(b, lines)
}

// leftOut says who is left out, and why.
func (r Report) leftOut() (lines [][]string) {
	for _, l := range r.LeftOut {
		who := names(l.Nodes)
		if l.Model != "" {
			who += " (" + clip(l.Model, mostModel) + ")"
		}
		lines = append(lines, []string{"  " + who, l.Why})
	}
	return lines
}

// sections write who is left out, what would change that, and other plans.
func (r Report) sections(b *strings.Builder, leftOut [][]string) {
	section(b, "Left out", leftOut)
	var lines [][]string
	for _, v := range r.Variants {
		lines = append(lines, []string{"  " + v.Flags, v.text()})
	}
	head := "What would use them (planned, not guessed)"
	if len(r.LeftOut) == 0 {
		head = "What would be faster (planned, not guessed)"
	}
	if len(lines) == 0 && r.Tried > 0 {
		lines = [][]string{{"  nothing", fmt.Sprintf("of %s: other micro-batches, codecs, sums and --sync", plan.Count(r.Tried, "setting"))}}
	}
	section(b, head, lines)
	lines = nil
	for _, n := range r.Next {
		text := fmt.Sprintf("a step takes %s, %s", plan.Time(schedule.Nanos(n.StepNanos)), slower(schedule.Nanos(n.StepNanos), schedule.Nanos(r.StepNanos)))
		lines = append(lines, []string{"  " + n.Shape, text})
	}
	section(b, "Next best", lines)
}

// section writes lines of two cells below a head, nothing without lines. Where the first cells leave little room, the
// second ones follow on lines of their own.
func section(b *strings.Builder, head string, lines [][]string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", head)
	width := 0
	for _, line := range lines {
		width = max(width, utf8.RuneCountInString(line[0]))
	}
	for _, line := range lines {
		indent := width + 2
		if width > columns/2 {
			fmt.Fprintln(b, line[0])
			indent = 6
		} else {
			fmt.Fprintf(b, "%s%s", line[0], strings.Repeat(" ", indent-utf8.RuneCountInString(line[0])))
		}
		for i, text := range wrap(line[1], columns-indent) {
			if i > 0 || width > columns/2 {
				b.WriteString(strings.Repeat(" ", indent))
			}
			fmt.Fprintln(b, text)
		}
	}
}

// writeTable writes lines of equally many cells in columns.
func writeTable(b *strings.Builder, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		text := ""
		for i, cell := range line {
			text += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
}

// wrap cuts a text into lines of at most so many letters, at spaces. It returns one line at least.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// clip cuts a text at so many letters.
func clip(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return text
}

// join lists numbers.
func join(numbers []int, between string) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, between)
}

// of says a part of a whole in the whole's unit.
func of(part, whole int64) string {
	text, unit := plan.Size(whole), int64(1<<30)
	switch {
	case strings.HasSuffix(text, "MiB"):
		unit = 1 << 20
	case !strings.HasSuffix(text, "GiB"):
		return plan.Size(part) + " of " + text
	}
	return fmt.Sprintf("%d.%d of %s", part/unit, part%unit*10/unit, text)
}

// rate prints small rates with digits after the point.
func rate(perS float64) string {
	if perS < 100 {
		return fmt.Sprintf("%.2f", perS)
	}
	return plan.Number(int64(perS))
}

// millis prints a short time: "0.6 ms", "14 ms".
func millis(nanos int64) string {
	tenths := (nanos + 50_000) / 100_000
	if tenths%10 == 0 || tenths >= 100 {
		return fmt.Sprintf("%d ms", tenths/10)
	}
	return fmt.Sprintf("%d.%d ms", tenths/10, tenths%10)
}

// shortly returns a schedule's text without orders.
func shortly(text string) string {
	spec, err := schedule.ParseSpec(text)
	if err != nil {
		return text
	}
	return spec.Short()
}
