package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewerFormatsAreRefused: a store and a manifest of a later program are left alone, and the error
// says what to fetch.
func TestNewerFormatsAreRefused(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, formatFile)
	if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), `{"format":2,`) {
		t.Fatalf("format: %s, %v", text, err)
	}
	for f, want := range map[format]string{
		{Format: 3, Pnode: "v3.1.0"}:  "the store has format 3, this pnode reads up to 2; fetch pnode v3.1.0, which wrote it, or a later one",
		{Format: 7}:                   "has format 7, this pnode reads up to 2; fetch the version of pnode that wrote it",
		{Format: 3, Pnode: "(devel)"}: "reads up to 2; fetch the version of pnode that wrote it",
	} {
		f.Check = f.check()
		text, err := json.Marshal(f)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []Options{{}, {ReadOnly: true}} {
			if _, err := Open(dir, o); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	// Damage does not make it a later format: it is written anew.
	for _, text := range []string{"", "two", `{"format":6,"pnode":"","check":"0123456789abcdef"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := openStore(t, dir, Options{}).Close(); err != nil {
			t.Fatal(err)
		}
		if missing, err := checkFormat(dir); missing || err != nil {
			t.Errorf("%q: still damaged, %v", text, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "index", "MANIFEST"), nil, 0o600); err != nil { // of format 1
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "format 1") {
		t.Errorf("a store of format 1: %v", err)
	}

	later := strings.Replace(string(goodManifest().Encode()), `{"run"`, `{"format":3,"pnode":"v3.1.0","more":[],"run"`, 1)
	_, err := decodeManifest([]byte(later))
	if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "the manifest has format 3, this pnode reads up to 2; fetch pnode v3.1.0") {
		t.Errorf("manifest: %v", err)
	}
}
