package checkpointer

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
)

func TestLivingHoldersAreAskedFirstAndTheDeadLast(t *testing.T) {
	f := Fetcher{Self: "me", Living: func() []plan.PeerID { return []plan.PeerID{"a", "b", "me"} }}
	got := f.order([]plan.PeerID{"dead", "b", "me"})
	want := []plan.PeerID{"b", "a", "dead"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestMissingChunksNameTheReasonWithAndWithoutOthers(t *testing.T) {
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	refused := errors.New("refused")
	f := Fetcher{Self: "me", Store: store, Living: func() []plan.PeerID { return nil }}
	f.Fetch = func(context.Context, plan.PeerID, []plan.Hash, func(plan.Hash, []byte) error) error {
		return refused
	}
	if err := f.Ensure(t.Context(), []plan.Hash{{1}}, nil); !errors.Is(err, ErrNoChunks) || strings.Contains(err.Error(), "%!") {
		t.Errorf("alone: %v", err)
	}
	if err := f.Ensure(t.Context(), []plan.Hash{{1}}, []plan.PeerID{"b"}); !errors.Is(err, ErrNoChunks) || !errors.Is(err, refused) {
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
		f := Fetcher{Self: "me", Store: store, Living: func() []plan.PeerID { return living }}
		f.Fetch = func(context.Context, plan.PeerID, []plan.Hash, func(plan.Hash, []byte) error) error {
			asked++
			return errors.New("busy")
		}
		if err := f.Await(t.Context(), []plan.Hash{{1}}, 10*awaitEvery); !errors.Is(err, ErrNoChunks) || asked < 10 {
			t.Errorf("asked %d times, then %v", asked, err)
		}
		living, asked = nil, 0
		if err := f.Await(t.Context(), []plan.Hash{{1}}, time.Hour); !errors.Is(err, ErrNoChunks) || asked != 0 {
			t.Errorf("alone: asked %d times, then %v", asked, err)
		}
	})
}
