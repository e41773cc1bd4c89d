package simulate

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strings"

	"pnode/planner/plan"
)

// Sizes of the picture in pixels.
const (
	pictureWidth  = 1120
	pictureMargin = 16
	scaleWidth    = 64 // numbers beside a chart
	stepsHeight   = 300
	fleetHeight   = 110
	chartGap      = 44
	legendHeight  = 20
)

// strokes are the colours of policies, in their order.
var strokes = []string{"#3b7dd8", "#2f935e", "#c27a1c", "#935fc4"}

const pictureStyle = `<style>
.paper{fill:#ffffff}
.title{font-size:15px;font-weight:600;fill:#1c2128}
.note,.tick{font-size:12px;fill:#57606a}
.grid{stroke:#d8dde3;stroke-width:1;fill:none}
.line{stroke-width:2;fill:none}
.fleet{fill:#9fb0c6}
@media (prefers-color-scheme:dark){
.paper{fill:#14171c}
.title{fill:#e6e9ed}
.note,.tick{fill:#9aa4b0}
.grid{stroke:#2e343c}
.fleet{fill:#46566b}
}
</style>
`

// chart maps time and a value to a rectangle of the picture.
type chart struct {
	top, height int
	end, most   int64
}

func (c chart) x(at int64) float64 {
	return scaleWidth + pictureMargin + float64(at)/float64(max(c.end, 1))*(pictureWidth-scaleWidth-2*pictureMargin)
}

func (c chart) y(value int64) float64 {
	return float64(c.top+c.height) - float64(value)/float64(max(c.most, 1))*float64(c.height)
}

// SVG draws, one below the other, how many steps each policy had done over time, and how many machines there were.
func (r Report) SVG(w io.Writer) error {
	out := bufio.NewWriter(w)
	top := 2*pictureMargin + legendHeight*(len(r.Results)+2)
	steps := chart{top: top, height: stepsHeight, end: r.Trace.EndNanos}
	fleet := chart{top: top + stepsHeight + chartGap, height: fleetHeight, end: r.Trace.EndNanos, most: int64(r.Trace.Most())}
	for _, res := range r.Results {
		for _, s := range res.Samples {
			steps.most = max(steps.most, s.Done)
		}
	}
	height := fleet.top + fleet.height + chartGap
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, 'DejaVu Sans', sans-serif">`+"\n", pictureWidth, height, pictureWidth, height)
	out.WriteString(pictureStyle)
	fmt.Fprintf(out, `<rect class="paper" width="%d" height="%d"/>`+"\n", pictureWidth, height)
	fmt.Fprintf(out, `<text class="title" x="%d" y="%d">steps done, with the constants %s</text>`+"\n", pictureMargin, pictureMargin+12, html.EscapeString(r.Constants.Name))
	steps.axes(out, "steps")
	for i, res := range r.Results {
		stroke, y := strokes[i%len(strokes)], pictureMargin+legendHeight*(i+1)+12
		text := res.Policy + ": " + res.Kept() + " of the time kept"
		if why := res.Why(); why != "" {
			text += "; " + why
		}
		fmt.Fprintf(out, `<path class="line" stroke="%s" d="M%d %dh22"/><text class="note" x="%d" y="%d">%s</text>`+"\n",
			stroke, pictureMargin, y-4, pictureMargin+30, y, html.EscapeString(text))
		fmt.Fprintf(out, `<path class="line" stroke="%s" d="%s"/>`+"\n", stroke, steps.polyline(res.Samples))
	}
	fleet.axes(out, "machines")
	if len(r.Results) > 0 {
		fmt.Fprintf(out, `<path class="fleet" d="%s"/>`+"\n", fleet.area(r.Results[0].Samples))
	}
	out.WriteString("</svg>\n")
	return out.Flush()
}

// axes draws a frame with the largest value, and the time of its beginning, middle and end.
func (c chart) axes(out *bufio.Writer, what string) {
	left, right, bottom := c.x(0), c.x(c.end), c.y(0)
	fmt.Fprintf(out, `<path class="grid" d="M%.1f %dV%.1fH%.1fM%.1f %.1fH%.1fM%.1f %dH%.1f"/>`+"\n",
		left, c.top, bottom, right, left, c.y(c.most/2), right, left, c.top, right)
	for _, value := range []int64{0, c.most / 2, c.most} {
		fmt.Fprintf(out, `<text class="tick" text-anchor="end" x="%.1f" y="%.1f">%d</text>`+"\n", left-6, c.y(value)+4, value)
	}
	fmt.Fprintf(out, `<text class="note" x="%d" y="%d">%s</text>`+"\n", pictureMargin, c.top-12, what)
	for i, anchor := range []string{"start", "middle", "end"} {
		at := c.end / 2 * int64(i)
		fmt.Fprintf(out, `<text class="tick" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n", anchor, c.x(at), bottom+18, plan.Duration(at))
	}
}

// polyline joins the steps that were done at samples.
func (c chart) polyline(samples []Sample) string {
	var b strings.Builder
	for i, s := range samples {
		command := 'L'
		if i == 0 {
			command = 'M'
		}
		fmt.Fprintf(&b, "%c%.1f %.1f", command, c.x(s.AtNanos), c.y(s.Done))
	}
	return b.String()
}

// area outlines what lies below the number of machines, which stays what it is until the next sample.
func (c chart) area(samples []Sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%.1f %.1f", c.x(0), c.y(0))
	for _, s := range samples {
		fmt.Fprintf(&b, "H%.1fV%.1f", c.x(s.AtNanos), c.y(int64(s.Machines)))
	}
	fmt.Fprintf(&b, "H%.1fV%.1fz", c.x(c.end), c.y(0))
	return b.String()
}
