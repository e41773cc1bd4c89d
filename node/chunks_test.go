package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestLivingHoldersAreAskedFirstAndTheDeadLast(t *testing.T) {
	f := chunkFetcher{self: "me", living: func() []plan.PeerID { return []plan.PeerID{"a", "b", "me"} }}
	got := f.order([]plan.PeerID{"dead", "b", "me"})
	want := []plan.PeerID{"b", "a", "dead"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// The connection to a node that was killed is open for half a minute yet.
func TestTheGoneAreNotLivingWhileTheyLookConnected(t *testing.T) {
	state := consensus.State{Members: []consensus.Member{
		{Peer: "a", State: consensus.Active}, {Peer: "killed", State: consensus.Gone},
	}}
	got := livingOf(state, []plan.PeerID{"killed", "a", "founder"})
	if want := []plan.PeerID{"a", "founder"}; !slices.Equal(got, want) {
		t.Errorf("living are %v, want %v", got, want)
	}
}

func TestMissingChunksNameTheReasonWithAndWithoutOthers(t *testing.T) {
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	refused := errors.New("refused")
	f := chunkFetcher{self: "me", store: store, living: func() []plan.PeerID { return nil }}
	f.fetch = func(context.Context, plan.PeerID, []plan.Hash, func(plan.Hash, []byte) error) error {
		return refused
	}
	if err := f.ensure(t.Context(), []plan.Hash{{1}}, nil); !errors.Is(err, errNoChunks) || strings.Contains(err.Error(), "%!") {
		t.Errorf("alone: %v", err)
	}
	if err := f.ensure(t.Context(), []plan.Hash{{1}}, []plan.PeerID{"b"}); !errors.Is(err, errNoChunks) || !errors.Is(err, refused) {
		t.Errorf("with a holder that refuses: %v", err)
	}
}

func TestSomebodyWhoIsBusyIsAskedAgain(t *testing.T) {
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		living := []plan.PeerID{"b"}
		f := chunkFetcher{self: "me", store: store, living: func() []plan.PeerID { return living }}
		f.fetch = func(context.Context, plan.PeerID, []plan.Hash, func(plan.Hash, []byte) error) error {
			asked++
			return errors.New("busy")
		}
		if err := f.await(t.Context(), []plan.Hash{{1}}, 10*awaitEvery); !errors.Is(err, errNoChunks) || asked < 10 {
			t.Errorf("asked %d times, then %v", asked, err)
		}
		living, asked = nil, 0
		if err := f.await(t.Context(), []plan.Hash{{1}}, time.Hour); !errors.Is(err, errNoChunks) || asked != 0 {
			t.Errorf("alone: asked %d times, then %v", asked, err)
		}
	})
}
