package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

const (
	// briefFrom is how many devices with stages, and how many nodes without, Brief has in full.
	briefFrom = 16
	// What Brief leaves of more: so many groups, notes on devices and on all, and names in one of these.
	briefGroups = 12
	briefLines  = 6
	briefNames  = 4
)

// Brief writes the report on a screen or two: of more than 16 devices with stages it has groups of like ones, the slowest and the fullest, and of more
// than 16 nodes without any it counts those of a kind. Otherwise it is Text.
func (r Report) Brief(w io.Writer) error {
	table, leftOut, notes := r.table, r.leftOut(), r.Notes
	if len(r.Devices) > briefFrom {
		table, notes = r.groupTable, r.briefNotes()
	}
	without := 0
	for _, l := range r.LeftOut {
		without += len(l.Nodes)
	}
	if without > briefFrom {
		leftOut = r.briefLeftOut()
	}
	return r.write(w, table, leftOut, notes)
}

// span holds the least and the largest of some numbers.
type span struct{ least, most int64 }

func (s *span) add(n int64, first bool) {
	if first {
		s.least = n
	}
	s.least, s.most = min(s.least, n), max(s.most, n)
}

// text writes a span, with the unit once where both numbers have the same: "1.5 to 3.0 GiB".
func (s span) text(format func(int64) string) string {
	least, most := format(s.least), format(s.most)
	if least == most {
		return least
	}
	if number, unit, ok := strings.Cut(least, " "); ok && strings.HasSuffix(most, " "+unit) {
		least = number
	}
	return least + " to " + most
}

// devices sums up the devices with one name.
type devices struct {
	name               string
	count              int
	layers, micros     span
	need, total, micro span
	sending            int
	codecs             []string
	bytesPerS, rtt     span
}

func (g *devices) add(d Device) {
	first := g.count == 0
	layers := 0
	for _, l := range d.Layers {
		layers += l.Len()
	}
	g.layers.add(int64(layers), first)
	g.need.add(d.NeedBytes, first)
	g.total.add(d.TotalBytes, first)
	g.micro.add(d.MicroNanos, first)
	g.micros.add(int64(d.Micros), first)
	if g.count++; d.Codec == "" {
		return
	}
	g.bytesPerS.add(d.BytesPerS, g.sending == 0)
	g.rtt.add(d.RTTNanos, g.sending == 0)
	if g.sending++; !slices.Contains(g.codecs, d.Codec) {
		g.codecs = append(g.codecs, d.Codec)
	}
}

// memory says how much is taken of how much: "1.5 to 7.0 of 8.0 GiB".
func (g *devices) memory() string {
	if g.total.least == g.total.most {
		return span{g.need.least, g.need.most}.text(func(n int64) string { return strings.TrimSuffix(of(n, g.total.most), " of "+plan.Size(g.total.most)) }) +
			" of " + plan.Size(g.total.most)
	}
	return g.need.text(plan.Size) + " of " + g.total.text(plan.Size)
}

func (g *devices) sends() string {
	if g.sending == 0 {
		return "-"
	}
	return strings.Join(g.codecs, ", ") + " " + g.bytesPerS.text(plan.Bandwidth) + " " + g.rtt.text(millis)
}

// groupTable writes a line for the devices of each name, the most first, and names the slowest device and the fullest.
func (r Report) groupTable(b *strings.Builder) {
	var groups []*devices
	at := map[string]*devices{}
	slowest, fullest := r.Devices[0], r.Devices[0]
	for _, d := range r.Devices {
		g := at[d.product]
		if g == nil {
			g = &devices{name: d.product}
			at[g.name], groups = g, append(groups, g)
		}
		g.add(d)
		if d.MicroNanos*int64(d.Micros) > slowest.MicroNanos*int64(slowest.Micros) {
			slowest = d
		}
		if d.TotalBytes-d.NeedBytes < fullest.TotalBytes-fullest.NeedBytes {
			fullest = d
		}
	}
	slices.SortStableFunc(groups, func(x, y *devices) int { return cmp.Compare(y.count, x.count) })
	lines := [][]string{{"devices", "device", "layers", "memory", "micro-batch", "next stage over"}}
	number := func(n int64) string { return fmt.Sprint(n) }
	for i, g := range groups {
		if i == briefGroups {
			break
		}
		lines = append(lines, []string{
			fmt.Sprint(g.count), clip(g.name, mostModel), g.layers.text(number), g.memory(),
			g.micro.text(func(n int64) string { return plan.Time(schedule.Nanos(n)) }) + " x " + g.micros.text(number), g.sends(),
		})
	}
	writeTable(b, lines)
	if more := groups[min(len(groups), briefGroups):]; len(more) > 0 {
		count := 0
		for _, g := range more {
			count += g.count
		}
		fmt.Fprintf(b, "%d more of %s\n", count, plan.Count(len(more), "kind"))
	}
	b.WriteString("\n")
	who := func(d Device) string {
		return fmt.Sprintf("%s, layers %s: ", plan.DeviceOf(d.Node, d.short()), d.layers())
	}
	writeTable(b, [][]string{
		{"slowest", who(slowest) + slowest.micro()},
		{"fullest", who(fullest) + of(fullest.NeedBytes, fullest.TotalBytes)},
		{"", "none slower or fuller than these: pnode plan --all shows each"},
	})
}

// briefly lists names as names does, and counts what is beyond a few.
func briefly(all []string) string {
	parts := runs(all)
	if len(parts) <= briefNames {
		return list(parts)
	}
	more := 0
	for _, p := range parts[briefNames:] {
		more += p.count
	}
	return fmt.Sprintf("%s and %d more", list(parts[:briefNames]), more)
}

// briefNotes returns the first notes on some devices and the first others, with few names in each.
func (r Report) briefNotes() (out []string) {
	said, more := map[bool]int{}, 0
	for _, n := range r.notes {
		some := len(n.nodes) > 0
		if said[some]++; said[some] > briefLines {
			more++
			continue
		}
		out = append(out, n.say(briefly(n.nodes)))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more: pnode plan --all shows each", more))
	}
	return out
}

// briefLeftOut counts the nodes of each line of LeftOut, the most first.
func (r Report) briefLeftOut() (lines [][]string) {
	more := 0
	left := slices.SortedStableFunc(slices.Values(r.LeftOut), func(a, b LeftOut) int { return cmp.Compare(len(b.Nodes), len(a.Nodes)) })
	for i, l := range left {
		if i >= briefGroups {
			more += len(l.Nodes)
			continue
		}
		who := "  " + plan.Count(len(l.Nodes), "node")
		if l.Model != "" {
			who += " (" + clip(l.Model, mostModel) + ")"
		}
		lines = append(lines, []string{who, l.Why + ": " + briefly(l.Nodes)})
	}
	if more > 0 {
		lines = append(lines, []string{"  " + fmt.Sprint(more, " more"), "pnode plan --all shows each"})
	}
	return lines
}
