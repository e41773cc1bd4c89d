package source

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// byteOrderMark begins files of UTF-8 that some of Windows' programs write.
const byteOrderMark = "\ufeff"

// jsonLines reads one object a line. Blank lines are left out.
func (r *reader) jsonLines(lines *bufio.Reader) error {
	var line []byte
	for number := int64(1); ; number++ {
		var err error
		line, err = readLine(lines, line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, ErrTooLong) {
			return r.damaged(fmt.Errorf("line %d: %w", number, err))
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte(byteOrderMark))
		}
		var document string
		if err == nil && len(bytes.TrimSpace(line)) > 0 {
			document, err = jsonDocument(line, r.options.field())
		}
		if err == nil {
			err = r.give([]byte(document))
			if err != nil {
				return err
			}
			continue
		}
		if err := r.malformed("line", number, err); err != nil {
			return err
		}
	}
}

// jsonDocument is the text that a field of a JSON object holds.
func jsonDocument(line []byte, field string) (string, error) {
	if !utf8.Valid(line) { // the decoder would replace what is not
		return "", errors.New("not UTF-8")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return "", fmt.Errorf("no JSON object: %w", err)
	}
	value, ok := object[field]
	if !ok {
		return "", fmt.Errorf("no field %q; name the field of the text with --field", field)
	}
	if len(value) == 0 || value[0] != '"' {
		return "", fmt.Errorf("field %q is %.40s, no string", field, value)
	}
	var document string
	if err := json.Unmarshal(value, &document); err != nil {
		return "", err
	}
	// The decoder puts the replacement character where an escape of UTF-16 stands for nothing alone.
	const replacement = "\ufffd"
	made := strings.Count(document, replacement)
	if made > 0 && made > bytes.Count(value, []byte(replacement))+bytes.Count(bytes.ToLower(value), []byte(`\ufffd`)) {
		return "", errors.New("half of a surrogate pair")
	}
	return document, checkText([]byte(document))
}
