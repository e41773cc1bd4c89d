package leader

import (
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

func TestAnInviteIsForAsManyAsItSays(t *testing.T) {
	state := consensus.State{Grants: []consensus.Grant{{Serial: 7, Peers: []plan.PeerID{"a", "b"}}}}
	capability := func(serial admission.Serial, uses int) admission.Capability {
		return admission.Capability{Grant: admission.Grant{Serial: serial, Uses: uses}}
	}
	if e, ok := binding(state, consensus.Member{Peer: "b"}, capability(7, 2)); ok {
		t.Errorf("a bound member gives %+v", e)
	}
	if e, _ := binding(state, consensus.Member{Peer: "c"}, capability(7, 3)); e != (consensus.BindGrant{Serial: 7, Peer: "c"}) {
		t.Errorf("one more of three gives %+v", e)
	}
	if e, _ := binding(state, consensus.Member{Peer: "c"}, capability(8, 1)); e != (consensus.BindGrant{Serial: 8, Peer: "c"}) {
		t.Errorf("a new invite gives %+v", e)
	}
	e, _ := binding(state, consensus.Member{Peer: "c", ProcessEpoch: 5}, capability(7, 2))
	if gone, ok := e.(consensus.SetMemberState); !ok || gone.Peer != "c" || gone.ProcessEpoch != 5 || gone.State != consensus.Gone {
		t.Errorf("one too many gives %+v", e)
	}
}
