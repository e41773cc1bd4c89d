package monitor

import (
	"fmt"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// spareWatch knows of which members without a stage it was told what they would add, and by which process of theirs.
type spareWatch map[plan.PeerID]uint64

// news returns sentences for people about members of which nothing was told yet since their processes began.
func (w *spareWatch) news(state consensus.State, s gossip.Spares, self plan.PeerID) (news []string) {
	texts := spareTexts(state, s)
	for _, m := range state.Members {
		if text := texts[m.Peer]; text != "" && (*w)[m.Peer] != m.ProcessEpoch {
			if *w == nil {
				*w = spareWatch{}
			}
			(*w)[m.Peer] = m.ProcessEpoch
			who := "this node"
			if m.Peer != self {
				who = state.NameOf(m.Peer)
			}
			news = append(news, who+" "+text)
		}
	}
	return news
}

// spareTexts says what each active member without a stage would add to the plan that runs, for those of which the leader has found out.
func spareTexts(state consensus.State, s gossip.Spares) map[plan.PeerID]string {
	texts := map[plan.PeerID]string{}
	if state.Run == nil || state.Finished {
		return texts
	}
	rate := func(nanos int64) string {
		return plan.Number(int64(float64(tokensPerStep(*state.Run))*1e9/float64(nanos)+0.5)) + " tokens/s"
	}
	for _, spare := range s.Members {
		m, ok := state.Member(spare.Peer)
		if !ok || m.State != consensus.Active || state.Plan.Places(spare.Peer) || spare.WithoutNanos == 0 {
			continue
		}
		const later = "It gets a part when another node goes"
		switch without := rate(spare.WithoutNanos); {
		case spare.WithNanos == 0:
			texts[m.Peer] = fmt.Sprintf("would add nothing now: no plan with it comes near the %s that are predicted without it. %s", without, later)
		case spare.WithNanos >= spare.WithoutNanos:
			texts[m.Peer] = fmt.Sprintf("would add nothing now: %s are predicted for the best plan with it, %s without. %s", rate(spare.WithNanos), without, later)
		default:
			texts[m.Peer] = fmt.Sprintf("would help: %s are predicted with it, %s without. A change of plan has it once that pays", rate(spare.WithNanos), without)
		}
	}
	return texts
}
