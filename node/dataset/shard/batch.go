package shard

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"pnode/node/dataset/source"
)

const (
	// defaultBatchBytes of text are encoded at a time, or one larger document.
	defaultBatchBytes = 8 << 20
	// keepTokens is the largest buffer that stays for the next batch.
	keepTokens = 1 << 20
)

// Tokenizer makes the tokens; those of package tokenizer are some. It must be safe for
// concurrent use.
type Tokenizer interface {
	// Encode appends the tokens of text.
	Encode(dst []int32, text []byte) []int32
	// Vocab is the number of tokens: all are below it.
	Vocab() int
	// Hash distinguishes tokenizers.
	Hash() [32]byte
}

// place is where the input goes on behind a document.
type place struct {
	File int `json:"file"`
	// Documents of the file that have been read.
	Documents int64 `json:"documents"`
	// Skipped in the files before this one.
	Skipped source.Skipped `json:"skipped"`
}

// batch are documents in order and, once encoded, their tokens.
type batch struct {
	text   []byte
	ends   []int // of the documents in text
	places []place
	tokens [][]int32
}

func (b *batch) add(document []byte, at place) {
	b.text = append(b.text, document...)
	b.ends = append(b.ends, len(b.text))
	b.places = append(b.places, at)
}

func (b *batch) document(i int) []byte {
	begin := 0
	if i > 0 {
		begin = b.ends[i-1]
	}
	return b.text[begin:b.ends[i]]
}

// encode fills tokens on several goroutines; which encodes what does not matter.
func (b *batch) encode(ctx context.Context, t Tokenizer, threads int) error {
	for len(b.tokens) < len(b.ends) {
		b.tokens = append(b.tokens, nil)
	}
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(threads, len(b.ends)) {
		group.Go(func() error {
			for i := next.Add(1) - 1; int(i) < len(b.ends); i = next.Add(1) - 1 {
				if err := ctx.Err(); err != nil {
					return err
				}
				b.tokens[i] = t.Encode(b.tokens[i][:0], b.document(int(i)))
				outside := func(token int32) bool { return token < 0 || int(token) >= t.Vocab() }
				if bad := slices.IndexFunc(b.tokens[i], outside); bad >= 0 {
					return fmt.Errorf("the tokenizer gives token %d, its vocabulary ends at %d", b.tokens[i][bad], t.Vocab()-1)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// clear makes room for the next documents.
func (b *batch) clear() {
	if cap(b.text) > 2*defaultBatchBytes {
		b.text = nil
	}
	b.text, b.ends, b.places = b.text[:0], b.ends[:0], b.places[:0]
	for i := range b.tokens {
		if cap(b.tokens[i]) > keepTokens {
			b.tokens[i] = nil
		}
	}
}
