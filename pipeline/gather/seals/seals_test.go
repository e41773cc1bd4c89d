package seals

import (
	"bytes"
	"crypto/sha512"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// keys sign in the name of a peer: whoever knows the name can.
type keys plan.PeerID

func (k keys) Sign(message []byte) ([]byte, error) {
	signature := sha512.Sum512(append([]byte(k), message...))
	return signature[:], nil
}

func (keys) Verify(by plan.PeerID, message, signature []byte) error {
	if want, _ := keys(by).Sign(message); !bytes.Equal(signature, want) {
		return errors.New("another signature")
	}
	return nil
}

// testRound is of two replicas on two peers each, cut in different places.
func testRound() Round {
	run := plan.RunSpec{Run: "r", Model: model.Config{Vocab: 70, Context: 16, Blocks: 2, Heads: 2, Channels: 20}, Train: plan.TrainSpec{Steps: 10}}
	p := plan.Plan{Generation: 3, Local: &plan.Local{Rounds: plan.Rounds{Every: 5, Fragments: 1}, Codec: "int8"}}
	for r := range 2 {
		var pipe plan.Pipeline
		for s, layers := range []plan.LayerRange{{First: 0, End: 2 + r}, {First: 2 + r, End: 4}} {
			pipe.Stages = append(pipe.Stages, plan.Placement{Peer: plan.PeerID(fmt.Sprintf("peer-%d-%d", r, s)), Device: "cpu", Layers: layers})
		}
		p.Replicas = append(p.Replicas, pipe)
	}
	return Of(run, p, "", 5)
}

// exhibit returns what an honest coordinator shows of a replica whose messages are these texts.
func exhibit(t *testing.T, r Round, of plan.Replica, loss float64, messages ...string) (e Exhibit) {
	t.Helper()
	for layer, text := range messages {
		m := Message{of, layer}
		s, err := r.Seal(keys(r.Sender(m).Peer), m, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		e.Layers = append(e.Layers, s)
	}
	e.Report = wire.AppendOuterReport(nil, wire.OuterReport{Losses: []float64{loss, 2}})
	s, err := r.Seal(keys(plan.CoordinatorOf(r.Plan, of).Peer), Message{of, Losses}, e.Report)
	if err != nil {
		t.Fatal(err)
	}
	e.Seal = s.Seal
	return e
}

func TestSeals(t *testing.T) {
	r := testRound()
	m := Message{1, 2}
	s, err := r.Seal(keys("peer-1-0"), m, []byte("what layer 2 has learned"))
	if err != nil || r.Check(keys(""), m, s) != nil {
		t.Fatal(err, r.Check(keys(""), m, s))
	}
	otherPlan := testRound().Plan
	otherPlan.Start++
	otherRun := r.Run
	otherRun.Run = "s"
	for name, check := range map[string]func() error{
		"another layer":   func() error { return r.Check(keys(""), Message{1, 1}, s) },
		"another replica": func() error { return r.Check(keys(""), Message{0, 2}, s) },
		"losses":          func() error { return r.Check(keys(""), Message{1, Losses}, s) },
		"another hash":    func() error { o := s; o.Hash[0]++; return r.Check(keys(""), m, o) },
		"another seal":    func() error { o := s; o.Seal[0]++; return r.Check(keys(""), m, o) },
		"another round":   func() error { return r.After(10).Check(keys(""), m, s) },
		"another plan":    func() error { return Of(r.Run, otherPlan, "", 5).Check(keys(""), m, s) },
		"another lineage": func() error { return Of(r.Run, r.Plan, "recovery", 5).Check(keys(""), m, s) },
		"another run":     func() error { return Of(otherRun, r.Plan, "", 5).Check(keys(""), m, s) },
	} {
		if err := check(); !errors.Is(err, ErrSeal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := r.Sender(Message{1, Losses}).Peer; got != "peer-1-1" {
		t.Errorf("losses are sent by %s", got)
	}
}

func TestExhibits(t *testing.T) {
	r := testRound()
	e := exhibit(t, r, 1, 3, "a", "b", "c", "d")
	said := plan.Part{Steps: 2, Sum: e.Sum()}
	if err := r.Shows(keys(""), e, 1, said); err != nil {
		t.Fatal(err)
	}
	decoded, err := Decode(e.Append(nil))
	if err != nil || decoded.Sum() != said.Sum || r.Shows(keys(""), decoded, 1, said) != nil {
		t.Errorf("decoded: %v", err)
	}
	forged := e
	forged.Layers = append([]wire.Sealed{}, e.Layers...)
	forged.Layers[1] = exhibit(t, r, 0, 3, "a", "B").Layers[1] // of another member
	for name, c := range map[string]struct {
		shown Exhibit
		of    plan.Replica
		said  plan.Part
		want  string
	}{
		"another sum in the log":  {e, 1, plan.Part{Steps: 2, Sum: plan.Hash{1}}, "the log has another sum"},
		"more steps in the log":   {e, 1, plan.Part{Steps: 3, Sum: said.Sum}, "2 steps and 4 layers are shown, of 3 and 4"},
		"a layer is missing":      {exhibit(t, r, 1, 3, "a", "b", "c"), 1, said, "3 layers are shown"},
		"another replica's":       {e, 0, said, "layer 0: "},
		"a seal that is not":      {forged, 1, plan.Part{Steps: 2, Sum: forged.Sum()}, "layer 1: "},
		"losses that are not":     {Exhibit{Report: e.Report[1:], Seal: e.Seal, Layers: e.Layers}, 1, said, "wire: "},
		"losses without the seal": {Exhibit{Report: e.Report, Layers: e.Layers}, 1, said, "without its sender's seal"},
	} {
		if err := r.Shows(keys(""), c.shown, c.of, c.said); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		other Exhibit
		want  []plan.PeerID
	}{
		"the same":         {exhibit(t, r, 1, 3, "a", "b", "c", "d"), nil},
		"one layer":        {exhibit(t, r, 1, 3, "a", "b", "C", "d"), []plan.PeerID{"peer-1-0"}},
		"layers of one":    {exhibit(t, r, 1, 3, "A", "B", "c", "d"), []plan.PeerID{"peer-1-0"}},
		"the last layer":   {exhibit(t, r, 1, 3, "a", "b", "c", "D"), []plan.PeerID{"peer-1-1"}},
		"layers of both":   {exhibit(t, r, 1, 3, "A", "b", "c", "D"), []plan.PeerID{"peer-1-0", "peer-1-1"}},
		"losses":           {exhibit(t, r, 1, 4, "a", "b", "c", "d"), []plan.PeerID{"peer-1-1"}},
		"losses and layer": {exhibit(t, r, 1, 4, "a", "b", "c", "D"), []plan.PeerID{"peer-1-1"}},
	} {
		if got := r.Twofold(e, c.other, 1); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v have sealed two, want %v", name, got, c.want)
		}
	}
}

// TestTheLargestExhibit is one that can be read, of a round of as many inner steps as a plan may have.
func TestTheLargestExhibit(t *testing.T) {
	loss := 1.0
	e := Exhibit{Report: wire.AppendOuterReport(nil, wire.OuterReport{Losses: make([]float64, plan.MaxEvery), HeldOut: &loss, HeldOutF32: &loss})}
	e.Layers = make([]wire.Sealed, wire.MaxOuterHaveBytes/wire.SealedBytes)
	b := e.Append(nil)
	if _, err := Decode(b); err != nil || len(b) != MaxExhibitBytes {
		t.Errorf("%d bytes of %d: %v", len(b), MaxExhibitBytes, err)
	}
}

func FuzzDecodeExhibit(f *testing.F) {
	e := Exhibit{Report: []byte{0, 1, 2, 3, 4, 5, 6, 7, 8}, Seal: wire.Seal{9}, Layers: []wire.Sealed{{Hash: plan.Hash{1}}, {Seal: wire.Seal{2}}}}
	f.Add(e.Append(nil))
	f.Add(Exhibit{}.Append(nil))
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := Decode(bytes.Clone(b)); err == nil && !bytes.Equal(e.Append(nil), b) {
			t.Fatalf("%x decodes to %+v, which encodes otherwise", b, e)
		}
	})
}
