package api

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"pnode/planner/plan"
)

func curveOf(first, last plan.Step) (c Curve) {
	for s := first; s <= last; s++ {
		c.add(s, float64(s))
	}
	return c
}

// TestRecall: a node has the curve of one that knows more, with its own newer steps behind.
func TestRecall(t *testing.T) {
	for _, tt := range []struct {
		name       string
		own, other Curve
		want       Curve
	}{
		{"nothing here", Curve{}, curveOf(1, 30), curveOf(1, 30)},
		{"nothing there", curveOf(1, 30), Curve{}, curveOf(1, 30)},
		{"came late", curveOf(21, 33), curveOf(1, 30), curveOf(1, 33)},
		{"knows more", curveOf(1, 30), curveOf(20, 31), curveOf(1, 30)},
	} {
		var h Hub
		h.past.Train = tt.own
		h.Recall(Losses{Train: tt.other})
		if got := h.History().Train; !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	long := curveOf(1, 5*MaxPoints)
	late := curveOf(5*MaxPoints-10, 6*MaxPoints)
	late.recall(long)
	if n := late.steps(); len(late.Points) > MaxPoints || n != 6*MaxPoints || late.check() != nil {
		t.Errorf("%d points of %d steps: %v", len(late.Points), n, late.check())
	}
	for s := plan.Step(6*MaxPoints + 1); s < 9*MaxPoints; s++ {
		late.add(s, 1)
	}
	if err := late.check(); err != nil {
		t.Error(err)
	}
}

func TestDecodeLossesRefuses(t *testing.T) {
	for _, bad := range []string{
		"", "null!", `{"train":{"every":0,"points":[{"step":1,"count":1,"mean":1,"low":1,"high":1}]}}`,
		`{"train":{"every":1,"points":[{"step":1,"count":2,"mean":1,"low":1,"high":1}]}}`,
		`{"train":{"every":1,"points":[{"step":1,"count":1,"mean":2,"low":1,"high":1}]}}`,
		`{"train":{"every":3,"points":[]}}`,
		`{"train":{"every":4,"points":[{"step":2,"count":1,"mean":1,"low":1,"high":1},{"step":4,"count":1,"mean":1,"low":1,"high":1}]}}`,
		`{"train":{"every":1,"points":[{"step":1,"count":1,"mean":1,"low":1,"high":1e31}]}}`,
		`{"train":{"every":1,"points":[{"step":18446744073709551615,"count":1,"mean":1,"low":1,"high":1}]}}`,
		`{"train":{"every":1,"points":[{"step":2,"count":1,"mean":1,"low":1,"high":1},{"step":2,"count":1,"mean":1,"low":1,"high":1}]}}`,
		`{"train":{"every":2,"points":[{"step":18446744073709551615,"count":1,"mean":1,"low":1,"high":1},{"step":1,"count":1,"mean":1,"low":1,"high":1}]}}`,
		`{"other":1}`,
	} {
		if _, err := DecodeLosses([]byte(bad)); !errors.Is(err, ErrBadLosses) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := DecodeLosses(make([]byte, MaxLossesBytes+1)); !errors.Is(err, ErrBadLosses) {
		t.Errorf("too long: %v", err)
	}
}

// TestTheLongestLossesFit with every number as long as it gets.
func TestTheLongestLossesFit(t *testing.T) {
	var c Curve
	c.Every = mostEvery
	for i := range plan.Step(MaxPoints) {
		c.Points = append(c.Points, Point{Step: (i + 1<<19) * mostEvery, Count: mostEvery, Mean: -mostValue / 3, Low: -mostValue / 1.1, High: mostValue / 1.1})
	}
	want := Losses{Train: c, HeldOut: c}
	b, err := json.Marshal(want)
	if err != nil || len(b) > MaxLossesBytes {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if got, err := DecodeLosses(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read back: %v", err)
	}
}

// FuzzDecodeLosses looks for losses that panic, or that cannot go on.
func FuzzDecodeLosses(f *testing.F) {
	b, err := json.Marshal(Losses{Train: curveOf(1, 5), HeldOut: curveOf(3, 3)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Fuzz(func(t *testing.T, text string) {
		l, err := DecodeLosses([]byte(text))
		if err != nil {
			return
		}
		var h Hub
		h.Publish(Event{Kind: KindStep, Step: 3, Loss: 1})
		h.Recall(l)
		h.Publish(Event{Kind: KindStep, Step: 4, Loss: 1})
		past := h.History()
		if err := errors.Join(past.Train.check(), past.HeldOut.check()); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}
