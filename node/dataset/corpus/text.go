package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"pnode/node/dataset/files"
	"pnode/node/dataset/source"
)

// text writes a file of text of any size, which is one document. It reads the file twice: a file that was found and turns out not to be
// text is passed over as a whole.
func (w *writer) text(f source.File, r *source.Reader, o source.Options) error {
	size, err := textBytes(r.Text(), w.room())
	cut := errors.Is(err, errLimit)
	switch {
	case errors.Is(err, ErrNotText) && f.Named:
		return fmt.Errorf("%s is %w; convert it or leave it out", f.Path, err)
	case errors.Is(err, ErrNotText):
		w.report.Skipped.Files++
		return nil
	case err != nil && !cut:
		return fmt.Errorf("%s: %w; get the file again or leave it out", f.Path, err)
	}
	if err := w.begin(size); err != nil {
		return err
	}
	again, err := source.Open(f, o)
	if err != nil {
		return err
	}
	defer again.Close()
	if err := w.copy(f, again.Text(), size); err != nil {
		return err
	}
	if cut {
		return errLimit
	}
	return w.progress(f.SizeBytes)
}

// copy writes so many bytes of a file.
func (w *writer) copy(f source.File, text io.Reader, size int64) error {
	const piece = 16 << 20 // between two reports of the progress
	for done := int64(0); done < size; {
		n, err := io.CopyN(w.chunks, text, min(piece, size-done))
		done += n
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s became shorter while it was read: %d of %d bytes; start again", f.Path, done, size)
		}
		if err != nil {
			return err
		}
		if err := w.progress(int64(float64(done) / float64(size) * float64(f.SizeBytes))); err != nil {
			return err
		}
	}
	return nil
}

// textBytes reads all of a text and gives its size if it is UTF-8 without NUL bytes, else
// ErrNotText. A text of more than room bytes gives errLimit and the greatest size up to
// room that ends a character.
func textBytes(text io.Reader, room int64) (size int64, err error) {
	buf := make([]byte, 256<<10)
	kept := 0 // bytes of an unfinished character at the front of buf
	for {
		n, err := text.Read(buf[kept:])
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return 0, err
		}
		part := buf[:kept+n]
		whole := files.WholeCharacters(part)
		if !utf8.Valid(part[:whole]) || bytes.IndexByte(part, 0) >= 0 || end && whole < len(part) {
			return 0, fmt.Errorf("%w: near byte %d", ErrNotText, size)
		}
		if size+int64(whole) > room {
			return size + int64(files.WholeCharacters(part[:room-size])), errLimit
		}
		size += int64(whole)
		kept = copy(buf, part[whole:])
		if end {
			return size, nil
		}
	}
}
