package dataset

import (
	"errors"
	"fmt"

	"pnode/planner/plan"
)

// checkSpec bounds everything that a spec says, before anything is allocated for it.
func checkSpec(spec plan.DataSpec) error {
	size := spec.SizeBytes
	if size > MaxBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are accepted; give less with --data", ErrTooLarge, size, int64(MaxBytes))
	}
	if spec.HeldOutPermille < 0 || spec.HeldOutPermille > 999 {
		return fmt.Errorf("%w: held-out share of %d permille, 0 to 999 are accepted", ErrBadSpec, spec.HeldOutPermille)
	}
	if chunks := int64(len(spec.Chunks)); size < 0 || chunks != (size+ChunkBytes-1)/ChunkBytes {
		return fmt.Errorf("%w: %d bytes in %d chunks of %d", ErrBadSpec, size, chunks, ChunkBytes)
	}
	if t := spec.Tokens; t != nil {
		return checkTokens(*t, size)
	}
	return nil
}

func checkTokens(t plan.TokenSpec, size int64) error {
	if t.WidthBytes != 1 && t.WidthBytes != 2 && t.WidthBytes != 4 {
		return fmt.Errorf("%w: tokens of %d bytes, 1, 2 and 4 are accepted", ErrBadSpec, t.WidthBytes)
	}
	if most := int64(1)<<min(8*t.WidthBytes, 31) - 1; t.Vocab < 1 || int64(t.Vocab) > most+1 {
		return fmt.Errorf("%w: a vocabulary of %d in tokens of %d bytes, 1 to %d are accepted", ErrBadSpec, t.Vocab, t.WidthBytes, most+1)
	}
	if t.EndOfText < plan.NoToken || int(t.EndOfText) >= t.Vocab {
		return fmt.Errorf("%w: end-of-text token %d of a vocabulary of %d", ErrBadSpec, t.EndOfText, t.Vocab)
	}
	if size%int64(t.WidthBytes) != 0 {
		return fmt.Errorf("%w: %d bytes are no whole tokens of %d", ErrBadSpec, size, t.WidthBytes)
	}
	return nil
}

func checkWindow(w Window) error {
	if w.Context < 1 || w.Context > maxContext {
		return fmt.Errorf("%w: context of %d positions, 1 to %d are accepted", ErrBadSpec, w.Context, maxContext)
	}
	if w.StepRows < 1 || w.StepRows > maxRows {
		return fmt.Errorf("%w: %d sequences a step, 1 to %d are accepted", ErrBadSpec, w.StepRows, maxRows)
	}
	return nil
}

// checkFit holds a spec that is right in itself against the window.
func checkFit(spec plan.DataSpec, w Window) error {
	if have := spec.Vocab(); w.Vocab < have {
		return fmt.Errorf("%w: the model knows %d tokens, the data has %d; choose a --preset whose vocabulary is at least %d, "+
			"or tokenize with a smaller tokenizer", ErrVocabulary, w.Vocab, have, have)
	}
	tokens, heldOut := spec.TokenCount(), heldOutTokens(spec, w)
	if one := int64(w.Context) + 1; tokens-heldOut < one {
		return fmt.Errorf("%w: %d tokens; a context of %d needs %d: %d to train on and %d held out; "+
			"give more text with --data, or choose a shorter --context or another --preset", ErrTooShort, tokens, w.Context, one+heldOut, one, heldOut)
	}
	return nil
}

// Sentinels, wrapped by the errors of this package.
var (
	// ErrTooShort: the text does not hold one sequence to train on and one held out.
	ErrTooShort = errors.New("text too short")
	// ErrVocabulary: the model's vocabulary does not hold the data's tokens.
	ErrVocabulary = errors.New("vocabulary too small")
	// ErrTooLarge: the text is over MaxBytes.
	ErrTooLarge = errors.New("text too large")
	// ErrBadSpec: the data spec or a chunk of it is not what it says.
	ErrBadSpec = errors.New("bad data spec")
)
