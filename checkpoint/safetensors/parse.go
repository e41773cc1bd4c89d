package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// parseHeader reads the JSON object token by token: encoding/json alone would accept
// repeated keys and ignore unknown ones.
func parseHeader(text []byte) (header, error) {
	if len(text) == 0 || text[0] != '{' || !utf8.Valid(text) {
		return header{}, fmt.Errorf("%w: its header is no JSON object", ErrFormat)
	}
	p := parser{json.NewDecoder(bytes.NewReader(text))}
	p.UseNumber()
	var h header
	seen := map[string]bool{}
	err := p.object(func(key string) (err error) {
		switch {
		case len(key) > maxNameBytes:
			return fmt.Errorf("a name of %d bytes, %.32q...: at most %d are accepted", len(key), key, maxNameBytes)
		case len(h.tensors) == MaxTensors:
			return fmt.Errorf("more than %d tensors", MaxTensors)
		case seen[key]:
			return fmt.Errorf("%q stands twice", key)
		}
		seen[key] = true
		if key == metadataKey {
			h.metadata, err = p.stringMap(MaxTensors)
			return err
		}
		t, err := p.tensor(key)
		h.tensors = append(h.tensors, t)
		return err
	})
	if err != nil {
		return header{}, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	if _, err := p.Token(); !errors.Is(err, io.EOF) {
		return header{}, fmt.Errorf("%w: something follows the header's object", ErrFormat)
	}
	return h, nil
}

type parser struct{ *json.Decoder }

// object calls field for each key; field reads the value.
func (p parser) object(field func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	for p.More() {
		key, err := p.text()
		if err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
	}
	return p.delim('}')
}

func (p parser) delim(want json.Delim) error {
	got, err := p.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%s where %v is expected", shown(got), want)
	}
	return err
}

func (p parser) text() (string, error) {
	token, err := p.Token()
	if err != nil {
		return "", err
	}
	s, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("%s where text is expected", shown(token))
	}
	return s, nil
}

// shown returns a token for an error, cut: it may be as long as the header.
func shown(token json.Token) string { return fmt.Sprintf("%.32s", fmt.Sprint(token)) }

// stringMap reads an object of at most so many texts.
func (p parser) stringMap(most int) (map[string]string, error) {
	m := map[string]string{}
	err := p.object(func(key string) (err error) {
		if _, twice := m[key]; twice {
			return fmt.Errorf("%.80q stands twice", key)
		}
		if len(m) == most {
			return fmt.Errorf("more than %d entries", most)
		}
		m[key], err = p.text()
		return err
	})
	return m, err
}

// integers reads a list of at most maxDims unsigned integers.
func (p parser) integers() ([]int, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	list := []int{}
	for p.More() {
		token, err := p.Token()
		if err != nil {
			return nil, err
		}
		if len(list) == maxDims {
			return nil, fmt.Errorf("a list of more than %d numbers", maxDims)
		}
		number, ok := token.(json.Number)
		n, err := strconv.ParseUint(string(number), 10, 63)
		if !ok || err != nil || n > math.MaxInt {
			return nil, fmt.Errorf("%s where an unsigned integer is expected", shown(token))
		}
		list = append(list, int(n))
	}
	return list, p.delim(']')
}

func (p parser) tensor(name string) (Tensor, error) {
	t := Tensor{Name: name}
	var offsets []int
	var haveType, haveShape bool
	err := p.object(func(key string) (err error) {
		switch {
		case key == "dtype" && !haveType:
			haveType = true
			var dtype string
			dtype, err = p.text()
			t.DType = DType(dtype)
		case key == "shape" && !haveShape:
			haveShape = true
			t.Shape, err = p.integers()
		case key == "data_offsets" && offsets == nil:
			offsets, err = p.integers()
		default:
			err = fmt.Errorf("the key %.32q is unknown or stands twice", key)
		}
		return err
	})
	if err == nil && (!haveType || !haveShape || len(offsets) != 2 || offsets[1] < offsets[0]) {
		err = errors.New("dtype, shape and two rising data_offsets are needed")
	}
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	t.offset, t.bytes = int64(offsets[0]), int64(offsets[1]-offsets[0])
	return t, nil
}
