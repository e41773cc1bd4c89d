package dataset

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/planner/plan"
)

func TestDocumentStarts(t *testing.T) {
	const end = 9
	tokens := []int32{
		1, 2, end, 3, 4, 5, // two documents, the first begun before the row
		end, 1, 1, end, end, 1, // an empty one too
		1, 1, 1, 1, 1, end, // its end does not reach into the next row
		1, 1, 1, 1, 1, 1,
	}
	want := []int32{
		0, 0, 0, 3, 3, 3,
		0, 1, 1, 1, 4, 5,
		0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0,
	}
	if got := DocumentStarts(tokens, 6, end); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestDocumentStartsEqualsSearch compares with a search backwards from each position.
func TestDocumentStartsEqualsSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	for range 300 {
		rows, context := 1+r.IntN(4), 1+r.IntN(20)
		tokens := make([]int32, rows*context)
		for i := range tokens {
			tokens[i] = r.Int32N(4)
		}
		got := DocumentStarts(tokens, context, 0)
		for i := range tokens {
			row := i - i%context
			want := row
			for j := row; j < i; j++ {
				if tokens[j] == 0 {
					want = j + 1
				}
			}
			if int(got[i]) != want-row {
				t.Fatalf("%v of rows of %d: position %d begins at %d, want %d", tokens, context, i, got[i], want-row)
			}
		}
	}
}

// TestDocumentsOfADataset reads micro-batches of bytes that end documents with a 7.
func TestDocumentsOfADataset(t *testing.T) {
	m, spec := storedText(counting(5000), 100)
	spec.Tokens = &plan.TokenSpec{WidthBytes: 1, Vocab: 256, EndOfText: 7}
	d, err := Open(m, spec, Window{Context: 300, StepRows: 2, Vocab: 256})
	if err != nil {
		t.Fatal(err)
	}
	tokens, _, err := d.Micro(t.Context(), 1, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	got := d.DocumentStarts(tokens)
	if !slices.Equal(got, DocumentStarts(tokens, 300, 7)) || slices.Max(got) == 0 {
		t.Errorf("got %v", got)
	}
	if slices.Max(openText(t, counting(5000), 100, Window{Context: 300, StepRows: 2, Vocab: 256}).DocumentStarts(tokens)) != 0 {
		t.Error("text without end-of-text tokens has documents")
	}
}
