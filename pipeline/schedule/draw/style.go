package draw

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/schedule"
)

// shades are how many stages of a worker can be told apart by colour.
const shades = 4

// kinds of bars, in the order of the legend.
var bars = []struct {
	ops         []schedule.Op
	class, name string
	red         int
	green       int
	blue        int
}{
	{[]schedule.Op{schedule.Forward}, "f", "forward", 0x3b, 0x7d, 0xd8},
	{[]schedule.Op{schedule.Backward}, "b", "backward", 0x2f, 0x93, 0x5e},
	{[]schedule.Op{schedule.BackwardInput}, "i", "input gradient", 0x1f, 0x97, 0x93},
	{[]schedule.Op{schedule.BackwardWeight}, "w", "weight gradient", 0xc2, 0x7a, 0x1c},
	{[]schedule.Op{schedule.Recompute}, "r", "recomputation", 0x93, 0x5f, 0xc4},
	{[]schedule.Op{schedule.SendActivation, schedule.SendGradient}, "s", "send", 0x5f, 0x7f, 0xa3},
	{[]schedule.Op{schedule.Reduce, schedule.Step, schedule.Gather}, "o", "reduction, step", 0x77, 0x7f, 0x8c},
}

// barClass is the style of a bar: its op, and which of its worker's stages it is about.
func barClass(op schedule.Op, held int) string {
	for _, b := range bars {
		if slices.Contains(b.ops, op) {
			return fmt.Sprintf("%s%d", b.class, max(held, 0)%shades)
		}
	}
	return "o0"
}

// style is the sheet of all pictures.
var style = func() string {
	var b strings.Builder
	b.WriteString(`<style>
.paper{fill:#ffffff}
.title{font-size:15px;font-weight:600;fill:#1c2128}
.note,.figures,.legend{font-size:12px;fill:#57606a}
.name{font-size:12px;fill:#1c2128}
.tick{font-size:11px;fill:#57606a;text-anchor:middle}
.grid{stroke:#d8dde3;stroke-width:1;fill:none}
.micro{font-size:10.5px;fill:#ffffff;text-anchor:middle;pointer-events:none}
.idle{fill:#eceff2}
.exposed{fill:url(#hatch)}
.under{fill:#fde3df}
.stripe{stroke:#e2877b;stroke-width:2}
.activation{stroke:#3b7dd8;stroke-width:1;fill:none;marker-end:url(#activation)}
.gradient{stroke:#2f935e;stroke-width:1;fill:none;marker-end:url(#gradient)}
.tip-activation{fill:#3b7dd8}
.tip-gradient{fill:#2f935e}
`)
	for _, bar := range bars {
		for shade := range shades {
			part := 100 - 19*shade
			fmt.Fprintf(&b, ".%s%d{fill:#%02x%02x%02x}\n", bar.class, shade, bar.red*part/100, bar.green*part/100, bar.blue*part/100)
		}
	}
	b.WriteString(`@media (prefers-color-scheme:dark){
.paper{fill:#14171c}
.title,.name{fill:#e6e9ed}
.note,.figures,.legend,.tick{fill:#9aa4b0}
.grid{stroke:#2e343c}
.idle{fill:#22272e}
.under{fill:#3d2422}
.stripe{stroke:#8c4a41}
.activation{stroke:#6ea8f5}
.gradient{stroke:#55bd87}
.tip-activation{fill:#6ea8f5}
.tip-gradient{fill:#55bd87}
}
</style>
<defs>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="under" width="6" height="6"/><path class="stripe" d="M0 0V6"/></pattern>
<marker id="activation" viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="5" markerHeight="5" orient="auto"><path class="tip-activation" d="M0 0L6 3L0 6z"/></marker>
<marker id="gradient" viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="5" markerHeight="5" orient="auto"><path class="tip-gradient" d="M0 0L6 3L0 6z"/></marker>
</defs>
`)
	return b.String()
}()

// entry is one sign of the legend.
type entry struct{ sign, name string }

// entries are the signs that the picture uses.
func (p *picture) entries() []entry {
	used := map[string]bool{}
	messages := false
	for _, panel := range p.panels {
		messages = messages || len(panel.Line.Messages) > 0
		for _, row := range panel.Line.Workers {
			for _, s := range row {
				if s.End > s.Start {
					used[barClass(s.Action.Op, 0)] = true
				}
			}
		}
	}
	var list []entry
	for _, b := range bars {
		if used[b.class+"0"] {
			list = append(list, entry{`<rect class="` + b.class + `0" width="22" height="13"/>`, b.name})
		}
	}
	list = append(list, entry{`<rect class="idle" width="22" height="13"/>`, "idle"})
	if messages {
		list = append(list, entry{`<rect class="exposed" width="22" height="13"/>`, "waits for a message"},
			entry{`<path class="activation" d="M0 2L21 11"/>`, "activation"},
			entry{`<path class="gradient" d="M0 11L21 2"/>`, "gradient"})
	}
	return list
}

func entryWidth(e entry) int { return 46 + int(float64(len(e.name))*6.6) }

// place calls visit with where each entry stands, and gives the height of them all.
func (p *picture) place(visit func(e entry, x, y int)) int {
	x, y := margin, 0
	for _, e := range p.entries() {
		if x > margin && x+entryWidth(e) > p.width-margin {
			x, y = margin, y+lineHeight
		}
		visit(e, x, y)
		x += entryWidth(e)
	}
	return y + lineHeight + 14
}

// units of time, the largest first.
var units = []struct {
	size schedule.Nanos
	name string
}{{1_000_000_000, "s"}, {1_000_000, "ms"}, {1_000, "µs"}, {1, "ns"}}

// ticks chooses steps of 1, 2 or 5 times a power of ten, at most so many up to the end, and
// the unit in which they are named.
func ticks(end schedule.Nanos, most int) (tick, unit schedule.Nanos, name string) {
	tick = 1
	for factor := 0; end/tick > schedule.Nanos(max(most, 2)); factor++ {
		if factor%3 == 1 {
			tick = tick / 2 * 5
		} else {
			tick *= 2
		}
	}
	for _, u := range units {
		if unit, name = u.size, u.name; end >= 2*u.size {
			break
		}
	}
	return tick, unit, name
}

// time is a duration in the unit of the axis, to three digits behind the point.
func (p *picture) time(t schedule.Nanos) string {
	return strconv.FormatFloat(float64(int64(float64(t)/float64(p.unit)*1000+0.5))/1000, 'f', -1, 64) + " " + p.unitName
}
