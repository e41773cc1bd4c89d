package link

import (
	"errors"
	"testing"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// TestFirstTriesAreDropped: the activations of a step's first try take no room, before and after they come; those of the second one do,
// and so do those of earlier steps, which a substitute gets again.
func TestFirstTriesAreDropped(t *testing.T) {
	b := &inbox{
		most: load{messages: 8, bytes: 1 << 10}, loads: map[account]load{}, admitted: map[key]admission{}, held: map[key][]byte{}, received: map[key]bool{},
		others: map[key]plan.PeerID{}, waiting: map[key]chan received{},
	}
	tag := func(step plan.Step, index int32) key {
		return key{"a", wire.Tag{Kind: wire.Activation, Generation: 1, Step: step, Index: index}}
	}
	comes := func(k key) error {
		err := b.admit(t.Context(), k, admission{by: "a", size: 3})
		if err == nil {
			b.deliver(k, "a", []byte("abc"))
		}
		return err
	}
	if err := errors.Join(comes(tag(7, 0)), comes(tag(8, 0)), comes(tag(8, 100))); err != nil {
		t.Fatal(err)
	}
	b.dropActivations(activations{8, 100})
	if used := b.loads[tag(8, 0).account()]; used != (load{2, 6}) || b.held[tag(8, 0)] != nil {
		t.Errorf("%+v is held, with the first try: %t", used, b.held[tag(8, 0)] != nil)
	}
	if err := comes(tag(8, 1)); !errors.Is(err, ErrDuplicate) {
		t.Errorf("a first try comes: %v", err)
	}
	if err := errors.Join(comes(tag(7, 1)), comes(tag(8, 101)), comes(tag(9, 0))); err != nil {
		t.Error(err)
	}
}
