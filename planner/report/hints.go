package report

import (
	"context"
	"fmt"
	"slices"

	"pnode/planner"
	"pnode/planner/plan"
)

const (
	// maxHintDevices bounds the devices of runs whose plans are searched for hints.
	maxHintDevices = 16
	// fasterLine is how many times as fast a line is tried.
	fasterLine = 4
)

// newcomer is the peer of a machine that nobody has.
const newcomer plan.PeerID = "one more"

// Hints says what would have a run train on clearly more tokens a second, each planned for the members of an input: another machine like the quickest one, a
// faster line in place of the slowest, and settings of a new run. It returns none for a run of many devices. The error is
// ctx's, with what was found before.
func Hints(ctx context.Context, in planner.Input) (texts []string, err error) {
	asked := in.Run
	in = in.Afresh() // what else there is may ask for another plan
	base, err := planner.MakeWithDetails(ctx, in)
	if err != nil || base.All > maxHintDevices {
		return nil, context.Cause(ctx)
	}
	if text := oneMore(ctx, in, base); text != "" {
		texts = append(texts, text)
	}
	if text := aFasterLine(ctx, in, base); text != "" {
		texts = append(texts, text)
	}
	variants, _, err := Variants(ctx, asked, base, func(ctx context.Context, run plan.RunSpec) (planner.Details, error) {
		fresh := planner.InputOf(run)
		fresh.NodeBytes, fresh.Members, fresh.Links, fresh.Ratios = in.NodeBytes, in.Members, in.Links, in.Ratios
		return planner.MakeWithDetails(ctx, fresh)
	})
	if err != nil {
		return texts, context.Cause(ctx)
	}
	for _, v := range variants {
		texts = append(texts, fmt.Sprintf("a new run with %s: %s", v.Flags, v.text()))
	}
	return texts, context.Cause(ctx)
}

// gain says how much faster steps of other plans are than those of base; empty where that is not worth a word.
func gain(base, other planner.Details, err error) string {
	if err != nil || other.Step <= 0 || int64(base.Step)*100 < int64(other.Step)*(100+gainPercent) {
		return ""
	}
	hundredths := (int64(base.Step)*100 + int64(other.Step)/2) / int64(other.Step)
	return fmt.Sprintf("%d.%02d times as fast (steps of %s in place of %s)", hundredths/100, hundredths%100, plan.Time(other.Step), plan.Time(base.Step))
}

// oneMore says what a machine like the quickest one of the plan would bring.
func oneMore(ctx context.Context, in planner.Input, base planner.Details) string {
	quickest := slices.MaxFunc(base.Devices, func(a, b planner.DeviceDetails) int {
		return int(min(max(a.Profile.MatMulFLOPS-b.Profile.MatMulFLOPS, -1), 1))
	})
	like := quickest.Profile
	in.Members = append(slices.Clone(in.Members), planner.Member{Peer: newcomer, Profile: plan.Profile{Devices: []plan.DeviceProfile{like}}})
	with, err := planner.MakeWithDetails(ctx, in)
	text := gain(base, with, err)
	if text == "" {
		return ""
	}
	return fmt.Sprintf("one more machine like %s with %s: %s", plan.DeviceOf(quickest.Node, quickest.Title), plan.Size(like.MemoryFreeBytes), text)
}

// aFasterLine says what it would bring if the slowest line of the plan were faster, of those that stages send over.
func aFasterLine(ctx context.Context, in planner.Input, base planner.Details) string {
	nodes := map[plan.PeerID]string{}
	for _, d := range base.Devices {
		nodes[d.Worker.Peer] = d.Node
	}
	var slowest planner.MeasuredLink
	for _, d := range base.Devices {
		for _, s := range d.Stages {
			if s.Sends && (slowest.BytesPerS == 0 || s.Link.BytesPerS < slowest.BytesPerS) {
				next := base.Plan.At(plan.StageID{Replica: s.At.Replica, Stage: s.At.Stage + 1})
				slowest = planner.MeasuredLink{From: d.Worker.Peer, To: next.Peer, BytesPerS: s.Link.BytesPerS, RTTNanos: s.Link.RTTNanos}
			}
		}
	}
	if slowest.BytesPerS == 0 {
		return ""
	}
	faster := min(fasterLine*slowest.BytesPerS, plan.MaxLinkBytesPerS)
	in.Members = slices.Clone(in.Members)
	for i := range in.Members {
		m := &in.Members[i]
		if other, end := across(slowest, m.Peer); end {
			m.Profile.Links = append(slices.DeleteFunc(slices.Clone(m.Profile.Links), func(l plan.LinkProfile) bool { return l.Peer == other }),
				plan.LinkProfile{Peer: other, BytesPerS: faster, RTTNanos: slowest.RTTNanos})
		}
	}
	in.Links = slices.DeleteFunc(slices.Clone(in.Links), func(l planner.MeasuredLink) bool {
		other, end := across(slowest, l.From)
		return end && l.To == other
	})
	with, err := planner.MakeWithDetails(ctx, in)
	text := gain(base, with, err)
	if text == "" {
		return ""
	}
	return fmt.Sprintf("a faster line between %s and %s, of %s in place of %s: %s", nodes[slowest.From], nodes[slowest.To], plan.Bandwidth(faster), plan.Bandwidth(slowest.BytesPerS), text)
}

// across returns the other end of a line, and reports whether a peer is one of its ends.
func across(line planner.MeasuredLink, p plan.PeerID) (other plan.PeerID, end bool) {
	switch p {
	case line.From:
		return line.To, true
	case line.To:
		return line.From, true
	}
	return "", false
}
