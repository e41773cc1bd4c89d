package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// loadInto reads a YAML file with nested keys into a struct of which every field has a yaml
// tag. Unknown keys and values that do not fit are refused; the error wraps ErrInvalid and
// names file, line and field. what names the file.
func loadInto(path, what string, target any) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: read the %s: %w", ErrInvalid, what, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return fmt.Errorf("%w: read the %s: %w", ErrInvalid, what, err)
	}
	return parseInto(path, content, target)
}

// parseInto is loadInto of content that was read already.
func parseInto(name string, content []byte, target any) error {
	fail := func(err error) error { return fmt.Errorf("%w: %s: %w", ErrInvalid, name, err) }
	if len(content) > maxFileBytes {
		return fail(fmt.Errorf("longer than %d bytes", maxFileBytes))
	}
	if !utf8.Valid(content) {
		return fail(errors.New("not UTF-8 text"))
	}
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		return fail(syntax(err))
	}
	if len(file.Docs) == 1 && file.Docs[0].Body == nil {
		return fail(errors.New("nothing is in it: want one document"))
	}
	if len(file.Docs) != 1 {
		return fail(fmt.Errorf("%d documents: want one", len(file.Docs)))
	}
	if err := decodeStruct(file.Docs[0].Body, reflect.ValueOf(target).Elem()); err != nil {
		return fail(err)
	}
	return nil
}

// decodeStruct sets the fields that a mapping names.
func decodeStruct(n ast.Node, target reflect.Value) error {
	pairs, ok := n.(ast.MapNode)
	if !ok {
		return fmt.Errorf("line %d: want lines of the form `key: value`", line(n))
	}
	for it := pairs.MapRange(); it.Next(); {
		key := it.Key().GetToken().Value
		field, ok := fieldOf(target, key)
		if !ok {
			return fmt.Errorf("line %d: unknown key %q: %s", line(it.Key()), key, didYouMean(key, keysOf(target.Type())))
		}
		if err := decodeField(it.Value(), field); err != nil {
			var placed placedError
			if errors.As(err, &placed) {
				return placed.within(key)
			}
			return placedError{line(it.Key()), key, err}
		}
	}
	return nil
}

// placedError is an error about the field with a path of keys.
type placedError struct {
	line int
	path string
	err  error
}

func (e placedError) Error() string { return fmt.Sprintf("line %d: %s: %v", e.line, e.path, e.err) }
func (e placedError) Unwrap() error { return e.err }

func (e placedError) within(key string) placedError {
	if e.path[0] != '[' {
		key += "."
	}
	e.path = key + e.path
	return e
}

func line(n ast.Node) int { return n.GetToken().Position.Line }

// keysOf are the keys of a struct, those of embedded ones included.
func keysOf(t reflect.Type) (keys []string) {
	for _, f := range fieldsOf(t) {
		keys = append(keys, f.Tag.Get("yaml"))
	}
	return keys
}

func fieldsOf(t reflect.Type) []reflect.StructField {
	fields := reflect.VisibleFields(t)
	return slices.DeleteFunc(fields, func(f reflect.StructField) bool { return f.Anonymous })
}

func fieldOf(target reflect.Value, key string) (reflect.Value, bool) {
	for _, f := range fieldsOf(target.Type()) {
		if f.Tag.Get("yaml") == key {
			return target.FieldByIndex(f.Index), true
		}
	}
	return reflect.Value{}, false
}

// decodeField sets a scalar, a struct, or a list of one of these.
func decodeField(n ast.Node, field reflect.Value) error {
	_, settable := field.Addr().Interface().(interface{ Set(string) error })
	switch {
	case !settable && field.Kind() == reflect.Struct:
		return decodeStruct(n, field)
	case !settable && field.Kind() == reflect.Slice:
		return decodeList(n, field)
	}
	if _, isList := n.(*ast.SequenceNode); isList {
		return errors.New("want one value, not a list")
	}
	texts, err := scalars(n)
	if err != nil {
		return err
	}
	return set(field, texts[0])
}

// maxElements bounds a list: no cluster has more links.
const maxElements = 1 << 12

func decodeList(n ast.Node, field reflect.Value) error {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return errors.New("want a list")
	}
	if len(list.Values) > maxElements {
		return fmt.Errorf("%d elements: want at most %d", len(list.Values), maxElements)
	}
	out := reflect.MakeSlice(field.Type(), len(list.Values), len(list.Values))
	for i, value := range list.Values {
		if err := decodeField(value, out.Index(i)); err != nil {
			place := fmt.Sprintf("[%d]", i)
			var placed placedError
			if errors.As(err, &placed) {
				return placed.within(place)
			}
			return placedError{line(value), place, err}
		}
	}
	field.Set(out)
	return nil
}
