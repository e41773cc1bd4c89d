package progress

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
)

// TestWhoIsSilentIsShownSinceWhen in its state, with how long ago it was heard beside it: also a member that was not heard since this node
// began.
func TestWhoIsSilentIsShownSinceWhen(t *testing.T) {
	since := time.Date(2026, 7, 1, 14, 3, 10, 0, time.Local)
	now := since.Add(time.Minute + 15*time.Second)
	for name, c := range map[string]struct {
		member api.Member
		want   string
	}{
		"silent":                {api.Member{State: api.MemberSilent, LastSeenS: 75, SilentSince: since}, "silent since 14:03:10  1 min 15 s ago"},
		"silent since long":     {api.Member{State: api.MemberSilent, LastSeenS: 2*86400 + 75, SilentSince: since.AddDate(0, 0, -2)}, "silent since Jun 29 14:03  2 days ago"},
		"not heard since then":  {api.Member{State: api.MemberSilent, SilentSince: since}, "silent since 14:03:10  never"},
		"heard":                 {api.Member{State: "active", LastSeenS: 2}, "active  2 s ago"},
		"it is this node":       {api.Member{State: "active", Self: true}, "active  -"},
		"it has left":           {api.Member{State: "gone", LastSeenS: 75}, "gone  1 min 15 s ago"},
		"it has just come":      {api.Member{State: "joining"}, "joining  never"},
		"of a moment, and ends": {api.Member{State: "draining", LastSeenS: 0.25}, "draining  0 s ago"},
	} {
		if got := memberState(c.member, now) + "  " + lastSeen(c.member); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestStatusOfThousandMembers fits on a screen or two where it is brief, and has all members where it is not.
func TestStatusOfThousandMembers(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := api.Status{Run: "abc", Peer: "p0003", Leader: "p0000", State: "training", Generation: 7, Term: 2, Steps: 600}
	cards := []string{"NVIDIA H200", "NVIDIA GeForce RTX 4090", "AMD Radeon RX 7900 XTX"}
	for i := range 1000 {
		m := api.Member{
			Peer: plan.PeerID(fmt.Sprintf("p%04d", i)), Name: fmt.Sprintf("machine-%d", i), State: "active", LastSeenS: float64(i%15 + 1),
			Kind: cards[i%3], Self: i == 3, Leader: i == 0, Placed: i < 400,
		}
		m.Device = fmt.Sprintf("cuda0 (%s, %d TFLOP/s)", m.Kind, 30+i%40)
		switch {
		case i%97 == 50:
			m.State, m.SilentSince = api.MemberSilent, now.Add(-time.Hour)
		case i%53 == 20 && !m.Placed:
			m.NotUsed = "until 15:00: its steps took 3 times as long as planned"
		case i >= 400 && i%7 == 0:
			m.State = "gone"
		case m.State == "active" && !m.Placed:
			m.Spare = "would add 2% to the tokens a second"
		}
		s.Roster = append(s.Roster, m)
		if m.Placed {
			s.Plan = append(s.Plan, api.StageStatus{
				Replica: plan.Replica(i / 8), Stage: plan.Stage(i % 8), Peer: m.Peer, Device: "cuda0",
				Layers: plan.LayerRange{First: i % 8, End: i%8 + 1}, ForwardMS: float64(100 + i*31%57), BackwardMS: 200, UpdateMS: 5,
			})
			if i%8 > 0 {
				s.Links = append(s.Links, api.LinkStatus{From: plan.PeerID(fmt.Sprintf("p%04d", i-1)), To: m.Peer, Transport: plan.QUIC})
			}
			s.Reasons = append(s.Reasons, fmt.Sprintf("stage %d has a reason", i))
		}
	}
	var brief, all bytes.Buffer
	if err := errors.Join(Status(&brief, s.Brief(), now, 0), Status(&all, s, now, 0)); err != nil {
		t.Fatal(err)
	}
	golden(t, "thousand.txt", brief.Bytes())
	if short, long := bytes.Count(brief.Bytes(), []byte("\n")), bytes.Count(all.Bytes(), []byte("\n")); short > 80 || long < 1400 {
		t.Errorf("%d lines, %d with all members", short, long)
	}
}
