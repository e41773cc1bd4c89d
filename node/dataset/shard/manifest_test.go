package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func sampleManifest() Manifest {
	c := Counts{Documents: 2, Tokens: 9, TextBytes: 30}
	return Manifest{
		Version: 1, Vocab: 300, TokenBytes: 2, EndOfText: 299, Counts: c.plus(c),
		Shards: []Shard{{File: shardName(0), Counts: c}, {File: shardName(1), Counts: c}},
	}
}

func TestManifestIsStrict(t *testing.T) {
	for says, change := range map[string]func(*Manifest){
		"version":     func(m *Manifest) { m.Version = 2 },
		"vocab":       func(m *Manifest) { m.Vocab = 0 },
		"token_bytes": func(m *Manifest) { m.TokenBytes = 4 },
		"end_of_text": func(m *Manifest) { m.EndOfText = 300 },
		"skipped":     func(m *Manifest) { m.Skipped = -1 },
		"0 shards":    func(m *Manifest) { m.Shards = nil },
		"file":        func(m *Manifest) { m.Shards[1].File = "../x" },
		"do not fit":  func(m *Manifest) { m.Shards[1].Tokens = 1 },
		"the folder":  func(m *Manifest) { m.Tokens++ },
	} {
		m := sampleManifest()
		change(&m)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(b); !errors.Is(err, ErrBadManifest) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	b, err := json.Marshal(sampleManifest())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeManifest(b); err != nil {
		t.Error(err)
	}
	for _, text := range []string{string(b) + "{}", strings.Replace(string(b), "vocab", "vocabulary", 1), string(b[:len(b)-1]), ""} {
		if _, err := decodeManifest([]byte(text)); !errors.Is(err, ErrBadManifest) {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	b, err := json.Marshal(sampleManifest())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			if !errors.Is(err, ErrBadManifest) {
				t.Fatal(err)
			}
			return
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := decodeManifest(again); err != nil || fmt.Sprint(n) != fmt.Sprint(m) {
			t.Fatalf("%+v becomes %+v: %v", m, n, err)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(encodeHeader(2))
	f.Fuzz(func(t *testing.T, b []byte) {
		width, err := decodeHeader(b)
		if err != nil && !errors.Is(err, ErrDamaged) || err == nil && !bytes.Equal(encodeHeader(width), b[:headerBytes]) {
			t.Fatalf("width %d: %v", width, err)
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"job":"` + strings.Repeat("0", 64) + `","at":{"file":0,"documents":3,"skipped":{"malformed":0,"files":0}},"shards":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decodeState(b); err != nil && !errors.Is(err, ErrBadManifest) {
			t.Fatal(err)
		}
	})
}
