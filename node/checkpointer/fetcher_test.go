package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lukechampine.com/blake3"

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
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
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

// TestTooFewOpenFilesAreNoMissingChunks: they are this node's own trouble, whoever of the others has the chunks.
func TestTooFewOpenFilesAreNoMissingChunks(t *testing.T) {
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, full := range []error{syscall.EMFILE, syscall.ENFILE} {
		f := Fetcher{Self: "me", Store: store, Living: func() []plan.PeerID { return []plan.PeerID{"b", "c"} }}
		f.Fetch = func(_ context.Context, from plan.PeerID, _ []plan.Hash, _ func(plan.Hash, []byte) error) error {
			if from == "b" {
				return fmt.Errorf("put chunk: %w", &fs.PathError{Op: "open", Path: "x", Err: full})
			}
			return errors.New("refused")
		}
		if err := f.Ensure(t.Context(), []plan.Hash{{1}}, []plan.PeerID{"b"}); errors.Is(err, ErrNoChunks) || !errors.Is(err, full) {
			t.Errorf("%v: %v", full, err)
		}
	}
}

// TestAFullDiskIsNoLackOfChunks: whoever is asked, what comes cannot be stored here, and one who sent it is enough to know.
func TestAFullDiskIsNoLackOfChunks(t *testing.T) {
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{ReserveBytes: 1 << 60})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	data := []byte("chunk")
	h, asked := plan.Hash(blake3.Sum256(data)), 0
	f := Fetcher{Self: "me", Store: store, Living: func() []plan.PeerID { return []plan.PeerID{"a", "b", "c"} }}
	f.Fetch = func(_ context.Context, _ plan.PeerID, _ []plan.Hash, store func(plan.Hash, []byte) error) error {
		if asked++; asked == 1 {
			return errors.New("refused")
		}
		return store(h, data)
	}
	err = f.Await(t.Context(), []plan.Hash{h}, time.Minute)
	if !errors.Is(err, checkpoint.ErrDiskFull) || errors.Is(err, ErrNoChunks) || !strings.Contains(err.Error(), "name a folder on another disk (--dir)") || asked != 2 {
		t.Errorf("after %d questions: %v", asked, err)
	}
}

func TestSomebodyWhoIsBusyIsAskedAgain(t *testing.T) {
	store, err := checkpoint.Open(quickDir(t), checkpoint.Options{})
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

// TestWhoIsBusyIsAskedAgainBeforeChunksAreGivenUp: it may well have them. The data comes with the sixth question, or never.
func TestWhoIsBusyIsAskedAgainBeforeChunksAreGivenUp(t *testing.T) {
	dir := quickDir(t)
	data, busy := []byte("state"), errors.New("busy")
	there, never := plan.Hash(blake3.Sum256(data)), plan.Hash{1}
	synctest.Test(t, func(t *testing.T) {
		store, err := checkpoint.Open(dir, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		asked := 0
		f := Fetcher{Self: "me", Store: store, Living: func() []plan.PeerID { return []plan.PeerID{"b"} }, Busy: func(err error) bool { return errors.Is(err, busy) }}
		f.Fetch = func(_ context.Context, _ plan.PeerID, hashes []plan.Hash, put func(plan.Hash, []byte) error) error {
			if asked++; asked < 6 || hashes[0] == never {
				return fmt.Errorf("fetch: %w", busy)
			}
			return put(hashes[0], data)
		}
		if err := f.Ensure(t.Context(), []plan.Hash{there}, nil); err != nil || asked != 6 {
			t.Errorf("asked %d times, then %v", asked, err)
		}
		begin := time.Now()
		if err := f.Ensure(t.Context(), []plan.Hash{never}, nil); !errors.Is(err, ErrNoChunks) || !errors.Is(err, busy) || time.Since(begin) < busyPatience {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*awaitEvery)
		defer cancel()
		if err := f.Ensure(ctx, []plan.Hash{never}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("under a deadline: %v", err)
		}
	})
}

// TestTheSilentAreAskedLast: others that may have the chunk are asked before, and nothing is taken for granted of a silent source.
func TestTheSilentAreAskedLast(t *testing.T) {
	f := Fetcher{
		Self: "me", Living: func() []plan.PeerID { return []plan.PeerID{"silent", "a", "b", "me"} },
		Silent: func(p plan.PeerID) bool { return p == "silent" },
	}
	if got, want := f.order(nil), []plan.PeerID{"a", "b", "silent"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := f.order([]plan.PeerID{"silent", "b", "dead"}), []plan.PeerID{"b", "a", "silent", "dead"}; !slices.Equal(got, want) {
		t.Errorf("of some holders: got %v, want %v", got, want)
	}
	if got, want := f.speaking(), []plan.PeerID{"a", "b", "me"}; !slices.Equal(got, want) {
		t.Errorf("who speaks: %v, want %v", got, want)
	}
}
