package outersteps

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"pnode/pipeline/gather/seals"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// peers answer each other in one process.
type peers struct {
	answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error)
	change func([]byte) ([]byte, error)
}

func (p *peers) Ask(ctx context.Context, _ plan.PeerID, _ string, request any) ([]byte, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	answer, err := p.answer(ctx, "", b)
	if err == nil && p.change != nil {
		return p.change(answer)
	}
	return answer, err
}

func (p *peers) Serve(_ string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error)) {
	p.answer = answer
}

// TestExhibitsOfTheNewestRound: a coordinator shows what it has gathered in the newest round, of whom it has all messages, and says where that is nothing.
func TestExhibitsOfTheNewestRound(t *testing.T) {
	w, p := &Words{}, &peers{}
	w.ServeExhibits(p)
	whole := seals.Exhibit{Report: []byte{0}, Seal: wire.Seal{1}, Layers: []wire.Sealed{{Hash: plan.Hash{2}, Seal: wire.Seal{3}}}}
	w.hear(has(10, 9, 0, 9), []seals.Exhibit{whole, {}, whole})
	ask := func(q Question) (seals.Exhibit, error) { return (&Words{}).Asker(p, "b")(t.Context(), "a", q) }
	if got, err := w.Asker(nil, "a")(t.Context(), "a", Question{Generation: 2, From: 10, By: 0, Of: 2}); err != nil || !reflect.DeepEqual(got, whole) {
		t.Errorf("of itself: %+v, %v", got, err)
	}
	if got, err := ask(Question{Generation: 2, From: 10, By: 0, Of: 2}); err != nil || !reflect.DeepEqual(got, whole) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, q := range map[string]Question{
		"another plan":            {Generation: 3, From: 10, By: 0, Of: 2},
		"another round":           {Generation: 2, From: 0, By: 0, Of: 2},
		"a replica of others":     {Generation: 2, From: 10, By: 1, Of: 2},
		"whose messages lack":     {Generation: 2, From: 10, By: 0, Of: 1},
		"no replica":              {Generation: 2, From: 10, By: 0, Of: 3},
		"a replica below nothing": {Generation: 2, From: 10, By: 0, Of: -1},
	} {
		if got, err := ask(q); !errors.Is(err, ErrNothing) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	p.change = func([]byte) ([]byte, error) { return []byte{1, 2}, nil }
	if got, err := ask(Question{Generation: 2, From: 10, Of: 2}); !errors.Is(err, ErrNothing) {
		t.Errorf("an answer that says nothing: %+v, %v", got, err)
	}
	p.change = func([]byte) ([]byte, error) { return nil, errors.New("connection refused") }
	if got, err := ask(Question{Generation: 2, From: 10, Of: 2}); err == nil || errors.Is(err, ErrNothing) {
		t.Errorf("no answer: %+v, %v", got, err)
	}
}
