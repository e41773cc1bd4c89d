package losses

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"slices"
)

// Sizes of the picture in pixels.
const (
	width, height = 960, 520
	left, right   = 64, 16
	top, bottom   = 44, 40
)

// strokes are the colours of arms, in their order.
var strokes = []string{"#3b7dd8", "#c27a1c", "#2f935e", "#935fc4", "#c44f5b", "#4a9aa8", "#7a6a4f", "#5b6470"}

const style = `<style>
.paper{fill:#ffffff}
.title{font-size:15px;font-weight:600;fill:#1c2128}
.tick{font-size:12px;fill:#57606a}
.grid{stroke:#d8dde3;stroke-width:1;fill:none}
.line{stroke-width:1.5;fill:none}
@media (prefers-color-scheme:dark){
.paper{fill:#14171c}
.title{fill:#e6e9ed}
.tick{fill:#9aa4b0}
.grid{stroke:#2e343c}
}
</style>
`

// SVG draws the held-out losses of all runs over their steps: a line for each, in the colour of its arm. The first tenth of the steps, where losses fall most, is left out.
func (r Report) SVG(w io.Writer) error {
	var shown []Run
	var losses []float64
	for _, run := range r.Runs {
		run.Points = slices.DeleteFunc(slices.Clone(run.Points), func(p Point) bool { return int(p.Step) < r.Steps/10 })
		for _, p := range run.Points {
			losses = append(losses, p.Exact)
		}
		shown = append(shown, run)
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui,sans-serif">`+"\n%s", width, height, width, height, style)
	fmt.Fprintf(out, `<rect class="paper" width="%d" height="%d"/><text class="title" x="%d" y="24">Held-out loss in nats a token</text>`+"\n", width, height, left)
	if len(losses) > 0 {
		r.draw(out, shown, slices.Min(losses), slices.Max(losses))
	}
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

// draw draws axes from the least to the most loss, runs, and what their colours mean.
func (r Report) draw(out io.Writer, runs []Run, least, most float64) {
	x := func(step float64) float64 { return left + step/float64(max(1, r.Steps))*(width-left-right) }
	y := func(loss float64) float64 {
		return top + (most-loss)/max(most-least, 1e-9)*(height-top-bottom)
	}
	for i := range 6 {
		loss, step := least+float64(i)/5*(most-least), float64(i)/5*float64(r.Steps)
		fmt.Fprintf(out, `<path class="grid" d="M%d %.1fH%d"/><text class="tick" x="%d" y="%.1f" text-anchor="end">%.3f</text>`+"\n", left, y(loss), width-right, left-8, y(loss)+4, loss)
		fmt.Fprintf(out, `<text class="tick" x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x(step), height-bottom+20, step)
	}
	for _, run := range runs {
		if len(run.Points) == 0 {
			continue
		}
		fmt.Fprintf(out, `<path class="line" stroke="%s" d="`, r.stroke(run.Arm))
		for i, p := range run.Points {
			fmt.Fprintf(out, "%c%.1f %.1f", "ML"[min(i, 1)], x(float64(p.Step)), y(p.Exact))
		}
		fmt.Fprintf(out, `"><title>%s</title></path>`+"\n", html.EscapeString(run.name()))
	}
	for i, arm := range r.Arms {
		at := top + 16 + 18*i
		fmt.Fprintf(out, `<path class="line" stroke="%s" d="M%d %dh24"/><text class="tick" x="%d" y="%d">%s</text>`+"\n", r.stroke(arm), width-280, at-4, width-248, at, html.EscapeString(arm))
	}
}

// stroke returns the colour of an arm.
func (r Report) stroke(arm string) string {
	return strokes[max(0, slices.Index(r.Arms, arm))%len(strokes)]
}
