package checkpoint

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pnode/planner/plan"
)

func goodManifest() Manifest {
	return Manifest{Run: "r", Step: 12, Generation: 3, Layers: []LayerState{
		{Layer: 0, SizeBytes: ChunkBytes + 1, Chunks: []plan.Hash{{1}, {2}}, Holders: []plan.PeerID{"b", "a"}},
		{Layer: 2, SizeBytes: 5, Chunks: []plan.Hash{{3}}},
		{Layer: 3},
	}}
}

func TestManifestGolden(t *testing.T) {
	zeros := strings.Repeat("0", 62)
	want := `{"run":"r","step":12,"generation":3,"layers":[` +
		`{"layer":0,"size_bytes":4194305,"chunks":["01` + zeros + `","02` + zeros + `"],"holders":["b","a"]},` +
		`{"layer":2,"size_bytes":5,"chunks":["03` + zeros + `"]},` +
		`{"layer":3,"size_bytes":0,"chunks":[]}]}`
	if got := string(goodManifest().Encode()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	m, err := decodeManifest([]byte(want))
	if err != nil || !bytes.Equal(m.Encode(), []byte(want)) {
		t.Errorf("decoded: %+v, %v", m, err)
	}
	if got := m.Hashes(); !reflect.DeepEqual(got, []plan.Hash{{1}, {2}, {3}}) {
		t.Errorf("hashes %v", got)
	}
}

// localManifest is of replicas with local steps.
func localManifest() Manifest {
	m := goodManifest()
	m.Own = []OwnState{{Replica: 0, Layers: []LayerState{{Layer: 2, SizeBytes: 7, Chunks: []plan.Hash{{4}}, Holders: []plan.PeerID{"a"}}}}, {Replica: 3}}
	m.Stream = plan.Stream{Given: []plan.MicroRange{{First: 5, End: 9}}, Fresh: 40}
	return m
}

// TestManifestOfLocalSteps has a format of its own, which older programs refuse.
func TestManifestOfLocalSteps(t *testing.T) {
	zeros := strings.Repeat("0", 62)
	plain := string(goodManifest().Encode())
	want := `{"format":2,` + strings.TrimSuffix(plain[1:], "}") + `,"own":[{"replica":0,"layers":[{"layer":2,"size_bytes":7,"chunks":["04` + zeros + `"],"holders":["a"]}]},` +
		`{"replica":3,"layers":[]}],"stream":{"given":[{"first":5,"end":9}],"fresh":40}}`
	if got := string(localManifest().Encode()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	m, err := decodeManifest([]byte(want))
	if err != nil || !bytes.Equal(m.Encode(), []byte(want)) {
		t.Errorf("decoded: %+v, %v", m, err)
	}
	if got := m.Hashes(); !reflect.DeepEqual(got, []plan.Hash{{1}, {2}, {3}, {4}}) {
		t.Errorf("hashes %v", got)
	}
	for name, text := range map[string]string{
		"without its format": strings.Replace(want, `"format":2,`, "", 1),
		"another format":     strings.Replace(want, `"format":2,`, `"format":1,`, 1),
		"not of local steps": `{"format":2,` + plain[1:],
	} {
		if _, err := decodeManifest([]byte(text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := decodeManifest([]byte(strings.Replace(want, `"format":2`, `"format":3`, 1))); !errors.Is(err, ErrVersion) {
		t.Errorf("of a later program: %v", err)
	}
}

func TestManifestRefuses(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"no run":              func(m *Manifest) { m.Run = "" },
		"long run":            func(m *Manifest) { m.Run = plan.RunID(strings.Repeat("r", maxRunBytes+1)) },
		"run not text":        func(m *Manifest) { m.Run = "\xff" },
		"generation 0":        func(m *Manifest) { m.Generation = 0 },
		"layers out of order": func(m *Manifest) { m.Layers[1].Layer = 3 },
		"layer twice":         func(m *Manifest) { m.Layers[1].Layer = 0 },
		"layer negative":      func(m *Manifest) { m.Layers[0].Layer = -1 },
		"size negative":       func(m *Manifest) { m.Layers[2].SizeBytes = -1 },
		"size over chunks":    func(m *Manifest) { m.Layers[1].SizeBytes = ChunkBytes + 1 },
		"a chunk too many":    func(m *Manifest) { m.Layers[0].SizeBytes = ChunkBytes },
		"chunks of nothing":   func(m *Manifest) { m.Layers[1].SizeBytes = 0 },
		"holder without name": func(m *Manifest) { m.Layers[0].Holders[1] = "" },
		"holder not text":     func(m *Manifest) { m.Layers[0].Holders[1] = "\xc0" },
		"holder twice":        func(m *Manifest) { m.Layers[0].Holders[1] = "b" },
		"many holders":        func(m *Manifest) { m.Layers[0].Holders = make([]plan.PeerID, maxHolders+1) },
		"a replica twice":     func(m *Manifest) { m.Own[1].Replica = 0 },
		"a replica too many":  func(m *Manifest) { m.Own[1].Replica = plan.MaxLocalReplicas },
		"a replica below 0":   func(m *Manifest) { m.Own[0].Replica = -1 },
		"own size":            func(m *Manifest) { m.Own[0].Layers[0].SizeBytes = ChunkBytes + 1 },
		"a stream backwards":  func(m *Manifest) { m.Stream.Given[0].End = 4 },
	} {
		m := localManifest()
		change(&m)
		if err := m.Validate(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: validate: %v", name, err)
		}
		if _, err := decodeManifest(m.Encode()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: decode: %v", name, err)
		}
	}
}

func TestDecodeRefusesOtherForms(t *testing.T) {
	good := string(goodManifest().Encode())
	for name, text := range map[string]string{
		"empty":         "",
		"not JSON":      "manifest",
		"space":         " " + good,
		"trailing":      good + "{}",
		"unknown field": strings.Replace(good, `"step"`, `"more":1,"step"`, 1),
		"field twice":   strings.Replace(good, `"step":12`, `"step":11,"step":12`, 1),
		"other case":    strings.Replace(good, `"step"`, `"Step"`, 1),
		"null":          strings.Replace(good, `"chunks":[]`, `"chunks":null`, 1),
		"upper case":    strings.Replace(good, `["01`, `["0A`, 1),
		"short hash":    strings.Replace(good, `["01`, `["1`, 1),
		"too long":      good + strings.Repeat(" ", maxManifestBytes),
	} {
		if _, err := decodeManifest([]byte(text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecodeManifest: what is accepted is canonical and valid, what is refused is ErrCorrupt.
func FuzzDecodeManifest(f *testing.F) {
	f.Add(goodManifest().Encode())
	f.Add(localManifest().Encode())
	f.Add([]byte(`{"run":"r","step":1,"generation":1,"layers":[]}`))
	f.Add([]byte(`{"run":"r","step":1,"generation":1,"layers":[{"layer":9223372036854775807,"size_bytes":-9223372036854775808,"chunks":[]}]}`))
	f.Add([]byte(`{"run":"\ud800","step":-1,"generation":18446744073709551616,"layers":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		if err := m.Validate(); err != nil || !bytes.Equal(m.Encode(), b) {
			t.Fatalf("accepted %q, which is %v and encodes to %q", b, err, m.Encode())
		}
	})
}

// TestAManifestsFileTellsEveryChange: each flipped bit, and each cut.
func TestAManifestsFileTellsEveryChange(t *testing.T) {
	m := goodManifest()
	sealed := sealed(manifestKind, m.Encode())
	if got, err := unsealManifest(m.Step, sealed); err != nil || !bytes.Equal(got.Encode(), m.Encode()) {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := unsealManifest(m.Step+1, sealed); !errors.Is(err, ErrCorrupt) {
		t.Errorf("under another step: %v", err)
	}
	for bit := range len(sealed) * 8 {
		sealed[bit/8] ^= 1 << (bit % 8)
		if _, err := unsealManifest(m.Step, sealed); !errors.Is(err, ErrCorrupt) {
			t.Errorf("bit %d: %v", bit, err)
		}
		sealed[bit/8] ^= 1 << (bit % 8)
	}
	for n := range sealed {
		if _, err := unsealManifest(m.Step, sealed[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

func TestPinCodec(t *testing.T) {
	hashes := []plan.Hash{{1}, {2, 3}}
	if got, err := decodePin(encodePin(hashes)); err != nil || !reflect.DeepEqual(got, hashes) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := decodePin(make([]byte, 33)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("33 bytes: %v", err)
	}
}

// FuzzDecodePin: what is decoded encodes to the same bytes.
func FuzzDecodePin(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 31))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		hashes, err := decodePin(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v", err)
			}
			return
		}
		if !bytes.Equal(encodePin(hashes), b) {
			t.Errorf("%d bytes come back otherwise", len(b))
		}
	})
}
