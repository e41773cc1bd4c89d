package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonLines reads one object a line. Blank lines are left out.
func (r *Reader) jsonLines() error {
	var line []byte
	for number := int64(1); ; number++ {
		var err error
		line, err = readLine(r.text, line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, ErrTooLong) {
			return r.damaged(fmt.Errorf("line %d: %w", number, err))
		}
		var document []byte
		if err == nil {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			document, err = jsonDocument(line, r.options.TextColumn())
		}
		if err != nil {
			err = r.malformed("line", number, err)
		} else {
			err = r.give(document)
		}
		if err != nil {
			return err
		}
	}
}

// jsonDocument is the text that a field of a JSON object holds; it may lie in the line.
func jsonDocument(line []byte, field string) ([]byte, error) {
	if !utf8.Valid(line) { // the decoder would replace what is not
		return nil, errNotUTF8
	}
	line = bytes.TrimSpace(line)
	if !json.Valid(line) || line[0] != '{' {
		err := json.Unmarshal(line, new(json.RawMessage))
		if err == nil {
			err = errors.New(printable(line, 40))
		}
		return nil, fmt.Errorf("no JSON object: %w", err)
	}
	var value []byte
	var names []string
	eachField(line, func(name, v []byte) {
		key, ok := unquoted(name)
		switch {
		case ok && key == field:
			value = v // the last one counts, as in other readers of JSON
		case value == nil && len(names) < mostFields:
			names = append(names, key)
		}
	})
	switch {
	case value == nil:
		return nil, fmt.Errorf("%w: there is no field %q but %s; name that of the text with --column", errWrongType, field, listed(names))
	case string(value) == "null":
		return nil, errNull
	case value[0] != '"':
		return nil, fmt.Errorf("%w: field %q is %s, no string", errWrongType, field, printable(value, 40))
	}
	document := value[1 : len(value)-1]
	if bytes.IndexByte(document, '\\') >= 0 {
		var err error
		if document, err = unescaped(document); err != nil {
			return nil, err
		}
	}
	return document, checkText(document)
}

// unescaped decodes a valid string of JSON, without its quotes. The standard decoder puts another character where an escape of UTF-16
// stands for nothing alone.
func unescaped(text []byte) ([]byte, error) {
	out := make([]byte, 0, len(text))
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 {
			return append(out, text...), nil
		}
		out = append(out, text[:at]...)
		escape := text[at+1]
		text = text[at+2:]
		if escape != 'u' {
			out = append(out, escapes[escape])
			continue
		}
		r := hex4(text)
		if text = text[4:]; utf16.IsSurrogate(r) {
			if !bytes.HasPrefix(text, []byte(`\u`)) {
				return nil, errSurrogate
			}
			if r = utf16.DecodeRune(r, hex4(text[2:])); r == utf8.RuneError {
				return nil, errSurrogate
			}
			text = text[6:]
		}
		out = utf8.AppendRune(out, r)
	}
}

var errSurrogate = errors.New("half of a surrogate pair")

// escapes lists what stands behind a backslash for one character.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// hex4 returns the number of four hexadecimal digits.
func hex4(digits []byte) (r rune) {
	for _, d := range digits[:4] {
		switch {
		case d <= '9':
			d -= '0'
		default:
			d = d&^0x20 - 'A' + 10
		}
		r = r<<4 | rune(d)
	}
	return r
}

// unquoted returns the text of a string of JSON.
func unquoted(name []byte) (string, bool) {
	if bytes.IndexByte(name, '\\') < 0 {
		return string(name[1 : len(name)-1]), true
	}
	var text string
	err := json.Unmarshal(name, &text)
	return text, err == nil
}

// eachField visits the fields of an object that json.Valid accepts: names with their quotes, values as they stand. A decoder into a map
// would need memory for each of the millions of fields that one line may have.
func eachField(object []byte, field func(name, value []byte)) {
	rest := bytes.TrimLeft(object[1:], jsonSpace)
	for rest[0] == '"' {
		end := stringEnd(rest)
		name := rest[:end]
		rest = bytes.TrimLeft(rest[end:], jsonSpace)
		rest = bytes.TrimLeft(rest[1:], jsonSpace) // behind the colon
		end = valueEnd(rest)
		field(name, rest[:end])
		rest = bytes.TrimLeft(rest[end:], jsonSpace+",")
	}
}

const jsonSpace = " \t\r\n"

// valueEnd returns the length of the value at the front of valid JSON.
func valueEnd(b []byte) int {
	switch b[0] {
	case '"':
		return stringEnd(b)
	case '{', '[':
		depth := 0
		for i := 0; ; i++ {
			switch b[i] {
			case '"':
				i += stringEnd(b[i:]) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	return bytes.IndexAny(b, ",}"+jsonSpace)
}

// stringEnd returns the length of the string at the front of valid JSON.
func stringEnd(b []byte) int {
	for i := 1; ; i++ {
		i += bytes.IndexByte(b[i:], '"')
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}
