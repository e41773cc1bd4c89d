package progress

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"pnode/node/api"
	"pnode/node/plain"
	"pnode/planner/plan"
)

// Status writes a snapshot as tables; now dates the checkpoint's age. Sentences of more than columns are broken between words; 0 columns break none.
func Status(w io.Writer, st api.Status, now time.Time, columns int) error {
	var text bytes.Buffer
	err := table(&text, func(p printer) { writeStatus(p, st, now) })
	if err == nil {
		_, err = io.WriteString(w, folded(text.String(), columns))
	}
	if err != nil {
		return fmt.Errorf("progress: write: %w", err)
	}
	return nil
}

// printer writes formatted text to where no write fails.
type printer struct{ tabs *tabwriter.Writer }

func (p printer) f(format string, args ...any) { fmt.Fprintf(p.tabs, format, args...) }

// table has fill write lines of cells that end with tabs, and writes them to w as columns.
func table(w io.Writer, fill func(printer)) error {
	var text bytes.Buffer
	tabs := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fill(printer{tabs})
	tabs.Flush()
	if _, err := w.Write(text.Bytes()); err != nil {
		return fmt.Errorf("progress: write: %w", err)
	}
	return nil
}

func writeStatus(p printer, st api.Status, now time.Time) {
	p.f("run\t%s\n", clean(string(st.Run)))
	p.f("node\t%s, %s\n", name(st, st.Peer), clean(st.State))
	leader := name(st, st.Leader)
	switch st.Leader {
	case "":
		leader = "none"
	case st.Peer:
		leader = "this node"
	}
	p.f("leader\t%s\n", leader)
	if st.Votes != "" {
		p.f("votes\t%s\n", clean(st.Votes))
	}
	p.f("step\t%s\n", stepLine(st))
	if st.Waiting != "" {
		p.f("WAITING\t%s\n", clean(st.Waiting))
	}
	if st.Round != nil {
		p.f("round\t%s\n", clean(st.Round.Text))
	}
	if o := st.Outer; o != nil {
		p.f("outer step\t%s\n", clean(o.Text))
		p.f("between\t%s\n", betweenReplicas(*o))
	}
	switch c := st.Checkpoint; {
	case c.Step == 0:
		p.f("checkpoint\tnone yet\n")
	case c.Time.IsZero():
		p.f("checkpoint\tstep %d\n", c.Step)
	default:
		p.f("checkpoint\tstep %d, %s ago\n", c.Step, plan.Duration(max(0, now.Sub(c.Time)).Round(time.Second)))
	}
	if s := st.Checkpoint.Saving; s != nil {
		p.f("saving\t%s\n", clean(s.Text))
	}
	if c := st.Checkpoint.Copies; c != nil {
		p.f("copies\t%s\n", clean(c.Text))
	}
	if c := st.Checkpoint.Cadence; c != nil {
		p.f("checkpoints\t%s\n", clean(c.Text))
	}
	if st.Whole != nil {
		p.f("model\t%s\n", clean(st.Whole.Text))
	}
	p.f("data\t%s of text, %s held out\n", size(st.Data.SizeBytes), size(st.Data.HeldOutBytes))
	for _, a := range st.Addrs {
		p.f("address\t%s\n", clean(a))
	}
	p.f("\n")
	writeRoster(p, st, now)
	p.f("\n")
	writeReplicas(p, st)
	writePlan(p, st)
}

// betweenReplicas says what local steps spare the lines between replicas.
func betweenReplicas(o api.OuterStep) string {
	text := fmt.Sprintf("replicas send %s bytes a token", threeDigits(o.BytesPerToken))
	if o.BytesPerToken > 0 {
		text += fmt.Sprintf(", sums in every step would be %s, %s times as many", threeDigits(o.EveryStepBytesPerToken), threeDigits(o.EveryStepBytesPerToken/o.BytesPerToken))
	}
	if o.HiddenS > 0 {
		text += fmt.Sprintf("; messages came for up to %s while inner steps were made", plan.Duration(time.Duration(o.HiddenS*float64(time.Second))))
	}
	return text
}

// threeDigits returns a number with three digits that say something.
func threeDigits(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// writeReplicas writes a row for each replica with local steps: where it is in the round, and how its newest outer gradient was.
func writeReplicas(p printer, st api.Status) {
	if len(st.Replicas) == 0 {
		return
	}
	p.f("REPLICA\tNODE\tROUND\tSTEP\tLOSS\tTOKENS/S\tWAITED\tNORM\tCOSINE\t\n")
	for _, r := range st.Replicas {
		step, loss, speed := "-", "-", "-"
		if r.Step > 0 {
			step, loss = fmt.Sprint(r.Step), fmt.Sprintf("%.4f", r.Loss)
		}
		if r.TokensPerS > 0 {
			speed = fmt.Sprintf("%.0f", r.TokensPerS)
		}
		p.f("%d\t%s\t%d of %d\t%s\t%s\t%s\t%s\t%s\n", r.Replica, name(st, r.Peer), r.Made, r.Of, step, loss, speed, outerCells(st, r.Replica), clean(r.Text))
	}
	if st.Rest != nil && st.Rest.Replicas > 0 {
		p.f("%d more\tpnode status --all shows each\n", st.Rest.Replicas)
	}
	p.f("\n")
}

// outerCells returns for how much of its round a replica stood still, and how its outer gradient was, in cells.
func outerCells(st api.Status, r plan.Replica) string {
	waited, norm, cosine := "-", "-", "-"
	if st.Outer != nil && st.Outer.Generation == st.Generation { // plans number replicas anew
		for _, part := range st.Outer.Replicas {
			if part.Replica != r {
				continue
			}
			if part.RoundS > 0 {
				waited = fmt.Sprintf("%.1f%%", 100*part.WaitedS/part.RoundS)
			}
			if part.Norm != nil && part.Cosine != nil {
				norm, cosine = threeDigits(*part.Norm), fmt.Sprintf("%.2f", *part.Cosine)
			}
			if part.Far != "" {
				cosine += " FAR"
			}
		}
	}
	return waited + "\t" + norm + "\t" + cosine
}

// writeRoster writes a row for each member, then why plans do without some, and what those would add that have no stage.
func writeRoster(p printer, st api.Status, now time.Time) {
	p.f("NODE\tSTATE\tLAST SEEN\tDEVICE\t\n")
	for _, m := range st.Roster {
		var marks []string
		if m.Self {
			marks = append(marks, "this node")
		}
		if m.Leader {
			marks = append(marks, "leader")
		}
		p.f("%s\t%s\t%s\t%s\t%s\n", name(st, m.Peer), memberState(m, now), lastSeen(m), clean(m.Device), strings.Join(marks, ", "))
	}
	writeOthers(p, st)
	for _, m := range st.Roster {
		if m.NotUsed != "" {
			p.f("NOT USED\t%s %s\n", name(st, m.Peer), clean(m.NotUsed))
		} else if m.Spare != "" {
			p.f("SPARE\t%s %s\n", name(st, m.Peer), clean(m.Spare))
		}
	}
}

// writeOthers counts the members that a brief status does not list.
func writeOthers(p printer, st api.Status) {
	if st.Rest == nil {
		return
	}
	for _, g := range st.Rest.Members {
		part := ""
		if g.Placed {
			part = "in the plan"
		}
		p.f("%d more\t%s\t\t%s\t%s\n", g.Count, clean(g.State), clean(g.Device), part)
	}
}

// writePlan writes a row for each stage, then links that QUIC does not carry, and the plan's reasons.
func writePlan(p printer, st api.Status) {
	if len(st.Plan) == 0 {
		p.f("no plan yet\n")
		return
	}
	if s := st.Substitute; s != nil {
		p.f("generation %d: %s\n", st.Generation, clean(s.Text))
	} else {
		p.f("generation %d\n", st.Generation)
	}
	if v := st.PostValidation; v != nil {
		p.f("%s\n", clean(v.Text))
	}
	p.f("REPLICA\tSTAGE\tLAYERS\tNODE\tDEVICE\tFORWARD\tBACKWARD\tWAIT\tUPDATE\n")
	for _, s := range st.Plan {
		p.f("%d\t%d\t%v\t%s\t%s\t%.1f ms\t%.1f ms\t%.1f ms\t%.1f ms\n", s.Replica, s.Stage,
			s.Layers, name(st, s.Peer), clean(cmp.Or(s.Title, s.Device)), s.ForwardMS, s.BackwardMS, s.WaitMS, s.UpdateMS)
	}
	if st.Rest != nil && st.Rest.Stages > 0 {
		p.f("%d more\tshown are this node's and the slowest: pnode status --all shows each\n", st.Rest.Stages)
	}
	for _, l := range st.Links {
		if l.Transport != "" && l.Transport != plan.QUIC {
			p.f("LINK\t%s\n", linkLine(st, l))
		}
	}
	if st.Rest != nil && st.Rest.Links > 0 {
		p.f("LINK\t%d more: pnode status --all shows those that QUIC does not carry\n", st.Rest.Links)
	}
	for _, r := range st.Reasons {
		p.f("- %s\n", clean(r))
	}
	if st.Rest != nil && st.Rest.Reasons > 0 {
		p.f("- and %d more reasons\n", st.Rest.Reasons)
	}
	for _, h := range st.Hints {
		p.f("- would help: %s\n", clean(h))
	}
}

// Links returns a line for each link of the plan: over what it goes, and why.
func Links(st api.Status) string {
	var b strings.Builder
	for _, l := range st.Links {
		fmt.Fprintln(&b, linkLine(st, l))
	}
	if len(st.Links) == 0 {
		b.WriteString("no links: no two nodes have a part in the plan\n")
	}
	return b.String()
}

// linkLine returns over what a link goes, and why: "desk -> spot-a on TCP: UDP gets no answer, 94.0 Mbit/s, 41 ms".
func linkLine(st api.Status, l api.LinkStatus) string {
	on := " on " + clean(l.Transport.String())
	switch l.Transport {
	case "":
		on = ""
	case plan.Relay:
		on = " through a relay"
	}
	var facts []string
	if l.Reason != "" {
		facts = append(facts, clean(l.Reason))
	}
	if l.BytesPerS > 0 {
		facts = append(facts, plan.Bandwidth(l.BytesPerS))
	}
	if l.RTTMS > 0 {
		facts = append(facts, fmt.Sprintf("%.0f ms", l.RTTMS))
	}
	line := fmt.Sprintf("%s -> %s%s", name(st, l.From), name(st, l.To), on)
	if len(facts) > 0 {
		line += ": " + strings.Join(facts, ", ")
	}
	return line
}

func stepLine(st api.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d", st.Step, st.Steps)
	if st.Loss != nil {
		fmt.Fprintf(&b, ", loss %.4f", *st.Loss)
	}
	if st.HeldOut != nil {
		fmt.Fprintf(&b, ", held-out %.4f", *st.HeldOut)
	}
	if text := api.PrecisionText(st.HeldOut, st.HeldOutF32, 4); text != "" {
		b.WriteString(" (" + text + ")")
	}
	if st.Waiting != "" {
		return b.String()
	}
	if st.TokensPerS > 0 {
		fmt.Fprintf(&b, ", %s tokens/s", plan.Number(int64(st.TokensPerS+0.5)))
	}
	if st.ETAS > 0 {
		fmt.Fprintf(&b, ", ETA %s", plan.Duration(wholeSeconds(time.Duration(st.ETAS*float64(time.Second)))))
	}
	return b.String()
}

// memberState returns the state of a member, and since when one is silent.
func memberState(m api.Member, now time.Time) string {
	if m.SilentSince.IsZero() {
		return clean(m.State)
	}
	return clean(m.State) + " since " + plain.Moment(m.SilentSince.Local(), now, time.TimeOnly)
}

// lastSeen returns how long ago this node heard a member.
func lastSeen(m api.Member) string {
	switch {
	case m.Self:
		return "-"
	case m.LastSeenS <= 0:
		return "never"
	}
	return plan.Duration(time.Duration(m.LastSeenS*float64(time.Second)).Round(time.Second)) + " ago"
}

// name returns what people call a peer.
func name(st api.Status, p plan.PeerID) string { return clean(st.NameOf(p)) }

// size is a number of bytes with a decimal unit.
func size(bytes int64) string {
	const step = 1000
	if bytes < step {
		return fmt.Sprintf("%d B", bytes)
	}
	v, unit := float64(bytes), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB"} {
		if v /= step; v < step {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}
