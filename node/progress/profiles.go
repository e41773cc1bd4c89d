package progress

import (
	"fmt"
	"io"
	"strings"

	"pnode/kernels"
	"pnode/node/api"
	"pnode/planner/plan"
)

// Profiles writes a table of devices, one of lines, what the columns do not say for themselves, and how many brief ones leave out.
func Profiles(w io.Writer, all api.Profiles) error {
	if err := table(w, func(p printer) { deviceTable(p, all.Devices) }); err != nil {
		return err
	}
	if err := table(w, func(p printer) { timesTable(p, all.Devices) }); err != nil {
		return err
	}
	if len(all.Links) == 0 && all.Rest == nil {
		_, err := fmt.Fprintln(w, "\nno lines were measured: another node is needed for that")
		return err
	}
	if err := table(w, func(p printer) { linkTable(p, all.Links) }); err != nil || all.Rest == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nshown: the slowest of the plan; %s and %s more with pnode profile --all\n", plan.Count(all.Rest.Devices, "device"), plan.Count(all.Rest.Links, "line"))
	return err
}

func deviceTable(p printer, devices []api.DeviceProfile) {
	p.f("NODE\tDEVICE\tPRODUCTS\tBF16\tF16\tATTENTION\tMEMORY\tCALL\tFREE\tLAYERS\tPLANNED\tMEASURED\n")
	for _, d := range devices {
		p.f("%s\t%s\t%s\t%s\t%s\t%s\t%s/s\t%s\t%s\t%s\t%s\t%s\n", clean(d.Node), clean(strings.TrimSpace(d.Name+" "+d.Model)),
			speed(d.MatMulFLOPS), speed(d.MatMulBF16FLOPS), speed(d.MatMulF16FLOPS), speed(d.AttentionFLOPS), size(d.MemoryBytesPerS), call(d.CallNanos), plan.Size(d.MemoryFreeBytes),
			layersOf(d.Layers), took(d.PlannedMS), measured(d))
	}
	for _, d := range devices {
		if d.CountedPermille < 1000 {
			p.f("%s of %s: plans count on %d.%d%% of these rates, as steps have shown\n", clean(d.Name), clean(d.Node), d.CountedPermille/10, d.CountedPermille%10)
		}
	}
}

// timesTable shows how fast calls of several sizes are, in operations or bytes a second: by type, and for each work.
func timesTable(p printer, devices []api.DeviceProfile) {
	begun := false
	for _, d := range devices {
		for _, of := range []struct {
			name  string
			times kernels.WorkTimes
		}{{"f32", d.Times}, {"bf16", d.TimesBF16}, {"f16", d.TimesF16}} {
			for w := kernels.WorkProducts; w <= kernels.WorkCopy; w++ {
				times := *of.times.Of(w)
				if !times.Measured() {
					continue
				}
				if !begun {
					p.f("\nNODE\tDEVICE\tCALLS\tTYPE\tSMALLEST%sLARGEST\n", strings.Repeat("\t", kernels.WorkSizes-1))
					begun = true
				}
				p.f("%s\t%s\t%v\t%s", clean(d.Node), clean(d.Name), w, of.name)
				for i, amount := range w.Sizes() {
					p.f("\t%s", rateText(w, amount, times[i]))
				}
				p.f("\n")
			}
		}
	}
}

// rateText says how much of a size a call does in a second.
func rateText(w kernels.Work, amount, nanos int64) string {
	rate := int64(min(float64(amount)/float64(max(nanos, 1))*1e9, 1e18))
	if w <= kernels.WorkAttentionBackward {
		return plan.Speed(rate)
	}
	return size(rate) + "/s"
}

func linkTable(p printer, links []api.LinkProfile) {
	p.f("\nFROM\tTO\tRATE\tRTT\tJITTER\tOVER\tMEASURED\n")
	for _, l := range links {
		rate, rtt, jitter, by := "-", "-", "-", "by a probe"
		if l.BytesPerS > 0 {
			rate = plan.Bandwidth(l.BytesPerS)
		}
		if l.RTTMS > 0 {
			rtt, jitter = took(l.RTTMS), took(l.JitterMS)
		}
		switch {
		case l.Estimated:
			by = "no, assumed"
		case l.Live:
			by = "by steps"
		case l.BytesPerS == 0 && l.RTTMS == 0:
			by = "no"
		}
		if l.Used {
			by += ", used"
		}
		over := "-"
		if l.Transport != "" {
			over = clean(l.Transport.String())
		}
		p.f("%s\t%s\t%s\t%s\t%s\t%s\t%s\n", clean(l.FromNode), clean(l.ToNode), rate, rtt, jitter, over, by)
	}
}

// speed is a rate of computing, or a dash where nobody measured it.
func speed(flops int64) string {
	if flops == 0 {
		return "-"
	}
	return plan.Speed(flops)
}

// call formats the time that a kernel call takes besides its operations: a dash where nobody measured it.
func call(nanos int64) string {
	if nanos == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f µs", float64(nanos)/1e3)
}

// took is a time in milliseconds, or a dash for none.
func took(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// measured says what a device's steps took, and how many times as long as planned that is.
func measured(d api.DeviceProfile) string {
	if d.MeasuredMS == 0 || d.PlannedMS == 0 {
		return took(d.MeasuredMS)
	}
	return fmt.Sprintf("%s, %.2fx", took(d.MeasuredMS), d.MeasuredMS/d.PlannedMS)
}

// layersOf names layers: "0-2, 6-8", or a dash for none.
func layersOf(ranges []plan.LayerRange) string {
	var all []string
	for _, r := range ranges {
		all = append(all, r.String())
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, ", ")
}
