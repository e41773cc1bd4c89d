package checkpoint

import (
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
	if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), `{"format":1,`) {
		t.Fatalf("format: %s, %v", text, err)
	}
	for text, want := range map[string]struct {
		is   error
		says string
	}{
		`{"format":2,"pnode":"v3.1.0"}`:  {ErrVersion, "the store has format 2, this pnode reads up to 1; fetch pnode v3.1.0, which wrote it, or a later one"},
		`{"format":7}`:                   {ErrVersion, "has format 7, this pnode reads up to 1; fetch the version of pnode that wrote it"},
		`{"format":2,"pnode":"(devel)"}`: {ErrVersion, "reads up to 1; fetch the version of pnode that wrote it"},
		`two`:                            {ErrCorrupt, "the file format holds"},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, o := range []Options{{}, {ReadOnly: true}} {
			if _, err := Open(dir, o); !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.says) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	if err := os.Remove(path); err != nil { // of a program that wrote none
		t.Fatal(err)
	}
	openStore(t, dir, Options{})

	later := strings.Replace(string(goodManifest().Encode()), `{"run"`, `{"format":2,"pnode":"v3.1.0","more":[],"run"`, 1)
	_, err := decodeManifest([]byte(later))
	if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "the manifest has format 2, this pnode reads up to 1; fetch pnode v3.1.0") {
		t.Errorf("manifest: %v", err)
	}
}
