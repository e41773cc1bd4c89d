package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// casesVariable names a folder with further cases of testdata/reference.py.
const casesVariable = "PNODE_TOKENIZER_CASES"

// cases holds the reference's answers for one tokenizer.
type cases struct {
	Tokenizer string `json:"tokenizer"`
	Vocab     int    `json:"vocab"`
	Cases     []struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
	} `json:"cases"`
}

func (c cases) open(t testing.TB) *BPE {
	t.Helper()
	path := c.Tokenizer
	if !filepath.IsAbs(path) {
		path = filepath.Join("testdata", path)
	}
	tokenizer, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

func allCases(t testing.TB) []cases {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.cases.json")
	if err != nil || len(paths) < 8 {
		t.Fatalf("%d files of cases, %v", len(paths), err)
	}
	if dir := os.Getenv(casesVariable); dir != "" {
		more, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil || len(more) == 0 {
			t.Fatalf("%s=%s has no cases: %v", casesVariable, dir, err)
		}
		paths = append(paths, more...)
	}
	all := make([]cases, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &all[i]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestEqualsReference(t *testing.T) {
	for _, c := range allCases(t) {
		t.Run(filepath.Base(c.Tokenizer), func(t *testing.T) {
			tokenizer := c.open(t)
			if tokenizer.Vocab() != c.Vocab {
				t.Errorf("vocabulary of %d, the reference's %d", tokenizer.Vocab(), c.Vocab)
			}
			wrong := 0
			for _, test := range c.Cases {
				text := []byte(test.Text)
				if got := tokenizer.Encode(nil, text); !slices.Equal(got, test.IDs) {
					if wrong++; wrong <= 10 {
						t.Errorf("%.200q:\n got %v\nwant %v", test.Text, clip(got), clip(test.IDs))
					}
				}
				if back := tokenizer.Decode(nil, test.IDs); !bytes.Equal(back, expectBack(tokenizer, text)) {
					if wrong++; wrong <= 10 {
						t.Errorf("%.200q came back as %.200q", test.Text, back)
					}
				}
			}
			t.Logf("%d documents, %d wrong", len(c.Cases), wrong)
		})
	}
}

// expectBack returns the text that Decode makes of text's tokens.
func expectBack(t *BPE, text []byte) []byte {
	if t.normalize {
		text = appendNFC(nil, text)
	}
	if t.spacing.visible {
		text = bytes.ReplaceAll(text, []byte(metaspace), []byte(" "))
	}
	prefix := " "
	switch {
	case len(text) == 0, t.spacing.kind == spacingNone:
		return text
	case t.spacing.strip && t.spacing.kind == spacingAlways:
		return text
	case t.spacing.strip: // a space that was there goes too
		return bytes.TrimPrefix(text, []byte(prefix))
	}
	return append([]byte(prefix), bytes.TrimPrefix(text, []byte(prefix))...)
}

func clip(tokens []int32) []int32 { return tokens[:min(len(tokens), 60)] }

// TestEqualHashes: the same tokenizer has the same hash from either kind of files, and no
// two of the cases share one.
func TestHash(t *testing.T) {
	seen := map[[32]byte]string{Bytes{}.Hash(): "bytes"}
	for _, c := range allCases(t) {
		tokenizer := c.open(t)
		if twin, ok := seen[tokenizer.Hash()]; ok && !strings.HasPrefix(c.Tokenizer, "/") {
			t.Errorf("%s has the hash of %s", c.Tokenizer, twin)
		}
		seen[tokenizer.Hash()] = c.Tokenizer
		if again := c.open(t).Hash(); again != tokenizer.Hash() {
			t.Errorf("%s has two hashes", c.Tokenizer)
		}
	}
}
