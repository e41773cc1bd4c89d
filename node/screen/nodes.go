package screen

import (
	"fmt"
	"strings"

	"pnode/node/api"
	"pnode/node/plain"
	"pnode/planner/plan"
)

// columns are the least and the most cells of a table's columns: what is left over goes to the last one.
const (
	mostName   = 18
	mostDoing  = 24
	mostStages = 30
)

// nodes is a table of the members that are not gone: what each does, which layers it has, on which device.
func (v View) nodes() part {
	type row struct{ name, doing, stages, device string }
	rows, styles := []row{}, []style{}
	nameRoom, doingRoom, stagesRoom := len("NODE"), len("STATE"), len("LAYERS")
	for _, m := range v.Status.Roster {
		if m.State == "gone" {
			continue
		}
		doing := v.doing(m)
		r := row{cut(v.nameOf(m.Peer), mostName), doing.text, v.layers(m.Peer), printable(m.Device)}
		if m.Leader {
			const star = " *"
			r.name = cut(r.name, mostName-len(star)) + star
		}
		nameRoom = min(mostName, max(nameRoom, width(r.name)))
		doingRoom = min(mostDoing, max(doingRoom, width(r.doing)))
		stagesRoom = min(mostStages, max(stagesRoom, width(r.stages)))
		rows, styles = append(rows, r), append(styles, doing.style)
	}
	if len(rows) == 0 {
		return part{}
	}
	cells := func(r row, doing, rest style) line {
		return line{
			{pad(r.name, nameRoom) + "  ", rest}, {pad(r.doing, doingRoom) + "  ", doing}, {pad(r.stages, stagesRoom) + "  ", rest}, {r.device, rest},
		}
	}
	p := headed("", []line{nil})
	p.lines = []line{cells(row{"NODE", "STATE", "LAYERS", "DEVICE (* leads)"}, faint, faint)}
	for i, r := range rows {
		p.lines = append(p.lines, cells(r, styles[i], plainly))
	}
	if v.Status.Rest != nil {
		for _, g := range v.Status.Rest.Members {
			p.lines = append(p.lines, line{{fmt.Sprintf("%d more: %s %s", g.Count, printable(g.State), printable(g.Device)), faint}})
		}
	}
	return p
}

// mostUnusual bounds the lines about members that plans do without.
const mostUnusual = 6

// unusual says why plans do without some members, and what those would add that have no part.
func (v View) unusual() part {
	var lines []line
	for _, m := range v.Status.Roster {
		text, s := fmt.Sprintf("%s is not used %s", v.nameOf(m.Peer), printable(m.NotUsed)), wary
		if m.NotUsed == "" {
			text, s = fmt.Sprintf("%s %s", v.nameOf(m.Peer), printable(m.Spare)), faint
		}
		if m.NotUsed+m.Spare != "" {
			lines = append(lines, v.hanging(line{}, text, s)...)
		}
	}
	return part{lines: lines[:min(len(lines), mostUnusual)], least: 1, more: someMore, joined: true}
}

// doing says what a member does, as far as this node knows.
func (v View) doing(m api.Member) span {
	switch s := v.Status.Substitute; {
	case !m.SilentSince.IsZero():
		return span{"silent since " + plain.Moment(m.SilentSince.Local(), v.Now, "15:04"), bad}
	case m.Self && v.Status.State != "training":
		return v.state()
	case m.NotUsed != "":
		return span{"not used", wary}
	case s != nil && s.By == m.Peer:
		return span{"stands in for " + v.nameOf(s.Lost), wary}
	case m.State == "joining":
		return span{"joining", plainly}
	case m.State == "draining":
		return span{"leaving", wary}
	case !m.Placed:
		return span{"standby", plainly}
	case v.Status.Waiting != "":
		return span{"waiting", wary}
	}
	return span{"training", good}
}

// layers names the layers of a member's stages: "0-2, 6-8".
func (v View) layers(p plan.PeerID) string {
	var all []string
	for _, s := range v.Status.Plan {
		if s.Peer == p && s.Layers.End > s.Layers.First {
			all = append(all, s.Layers.String())
		}
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, ", ")
}
