package dataset

import "errors"

// Sentinels, wrapped by the errors of this package.
var (
	// ErrNoText: the paths lead to no text at all.
	ErrNoText = errors.New("no text found")
	// ErrNotText: a file named by the user is not UTF-8 text.
	ErrNotText = errors.New("not UTF-8 text")
	// ErrTooShort: the text does not hold one sequence to train on and one held out.
	ErrTooShort = errors.New("text too short")
	// ErrVocabulary: the model's vocabulary does not hold the data's tokens.
	ErrVocabulary = errors.New("vocabulary too small")
	// ErrTooLarge: the text is over MaxBytes.
	ErrTooLarge = errors.New("text too large")
	// ErrBadSpec: the data spec or a chunk of it is not what it says.
	ErrBadSpec = errors.New("bad data spec")
	// ErrNoGo: no Go source tree on this machine.
	ErrNoGo = errors.New("no Go source tree found")
)
