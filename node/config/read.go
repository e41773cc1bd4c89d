package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"pnode/node/dataset/files"
)

const (
	// maxFileBytes bounds a file, maxElements a list in it: no cluster has more links.
	maxFileBytes = 1 << 20
	maxElements  = 1 << 12
)

// readFile reads a YAML file into a struct of which every field has a yaml tag, and returns the keys at the file's top.
// It refuses unknown and repeated keys and values that do not fit; the error wraps ErrInvalid and names
// file, line and field. what names the kind of file.
func readFile(path, what string, target any) ([]string, error) {
	content, err := files.Read(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: read the %s: %w", ErrInvalid, what, files.Explain(err))
	}
	return parse(path, content, target)
}

// parse is readFile of content that was read already.
func parse(name string, content []byte, target any) (keys []string, err error) {
	r := reader{name}
	content = bytes.TrimPrefix(content, []byte("\ufeff")) // as editors of Windows begin files
	if !utf8.Valid(content) {
		return nil, r.fail(0, "", errors.New("not UTF-8 text"))
	}
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		var e yaml.Error
		if !errors.As(err, &e) {
			return nil, r.fail(0, "", err)
		}
		at := 0
		if t := e.GetToken(); t != nil && t.Position != nil {
			at = t.Position.Line
		}
		what := inWords(e.GetMessage())
		if line, mistake := findMistake(string(content)); line > 0 {
			at, what = line, mistake
		}
		return nil, r.fail(at, "", errors.New(what))
	}
	for i, doc := range file.Docs {
		if doc.Body == nil { // nothing but comments
			continue
		}
		if i > 0 {
			return nil, r.fail(line(doc.Body), "", errors.New("a second document: remove it and its ---"))
		}
		if keys, err = r.object(doc.Body, reflect.ValueOf(target).Elem(), ""); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// reader sets fields from the nodes of a file. It reads scalars by the type of the field, not by how YAML would guess
// them: `preset: 3` is the text 3, and `steps: 1.5` is refused rather than cut off.
type reader struct{ file string }

// fail returns an error about a field; line 0 and an empty path are left out.
func (r reader) fail(line int, path string, err error) error {
	where := r.file
	if line > 0 {
		where += " line " + strconv.Itoa(line)
	}
	if path != "" {
		where += ": " + path
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, where, err)
}

func line(n ast.Node) int { return n.GetToken().Position.Line }

// object sets the fields that a mapping names, and returns its keys.
func (r reader) object(n ast.Node, target reflect.Value, path string) (keys []string, err error) {
	pairs, ok := n.(ast.MapNode)
	if !ok {
		return nil, r.fail(line(n), path, errors.New("want lines of the form `key: value`"))
	}
	fields := fieldsOf(target.Type())
	for it := pairs.MapRange(); it.Next(); {
		key := it.Key().GetToken().Value
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool { return f.Tag.Get("yaml") == key })
		if i < 0 {
			return nil, r.fail(line(it.Key()), path, fmt.Errorf("unknown key %q: %s", key, knownKeys(key, keysOf(target.Type()))))
		}
		inner := key
		if path != "" {
			inner = path + "." + key
		}
		if err := r.value(line(it.Key()), it.Value(), target.FieldByIndex(fields[i].Index), inner); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// value sets a scalar, a struct, or a list of one of these; one text stands for a list of it. Errors are about a line.
func (r reader) value(at int, n ast.Node, field reflect.Value, path string) error {
	_, settable := field.Addr().Interface().(setter)
	switch {
	case !settable && field.Kind() == reflect.Struct:
		_, err := r.object(n, field, path)
		return err
	case !settable && field.Kind() == reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok && field.Type().Elem().Kind() == reflect.String {
			one := reflect.MakeSlice(field.Type(), 1, 1)
			err := r.value(at, n, one.Index(0), path)
			field.Set(one)
			return err
		}
		if !ok {
			return r.fail(at, path, errors.New("want a list"))
		}
		if len(list.Values) > maxElements {
			return r.fail(at, path, fmt.Errorf("%d elements: want at most %d", len(list.Values), maxElements))
		}
		all := reflect.MakeSlice(field.Type(), len(list.Values), len(list.Values))
		for i, element := range list.Values {
			if err := r.value(line(element), element, all.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		field.Set(all)
		return nil
	}
	var text string
	switch n := n.(type) {
	case *ast.NullNode:
		return r.fail(at, path, errors.New("no value: give one or remove the key"))
	case *ast.SequenceNode:
		return r.fail(at, path, errors.New("want one value, not a list"))
	case *ast.LiteralNode: // | and >
		text = n.Value.Value
	case *ast.StringNode:
		text = n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		text = n.GetToken().Value
	case ast.MapNode:
		return r.fail(at, path, errors.New("want one value, not keys of its own"))
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		return r.fail(at, path, fmt.Errorf("want a plain value: put one that begins with %s in quotes", n.GetToken().Value))
	default:
		return r.fail(at, path, errors.New("want a plain value"))
	}
	if err := set(field, text); err != nil {
		return r.fail(at, path, err)
	}
	return nil
}

// setter is a value that reads its own text.
type setter interface{ Set(text string) error }

// set parses text by the type of the field.
func set(field reflect.Value, text string) (err error) {
	want := "a number"
	switch v := field.Addr().Interface().(type) {
	case setter:
		return v.Set(text)
	case *string:
		*v = text
	case *bool:
		*v = text == "true"
		if text != "true" && text != "false" {
			return fmt.Errorf("%q: want true or false", text)
		}
	case *int:
		*v, err = strconv.Atoi(text)
		want = "a whole number"
	case *uint64:
		*v, err = strconv.ParseUint(text, 10, 64)
		want = "a whole number from 0 to 18446744073709551615"
	case *float64:
		*v, err = strconv.ParseFloat(text, 64)
	default:
		panic("config: a field of type " + field.Type().String() + " has no text form")
	}
	if err != nil {
		return fmt.Errorf("%q: want %s", text, want)
	}
	return nil
}

// fieldsOf returns the fields of a struct that have a key, those of embedded ones included.
func fieldsOf(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Tag.Get("yaml") == "" })
}

// keysOf returns the keys of a struct, those of embedded ones included.
func keysOf(t reflect.Type) (keys []string) {
	for _, f := range fieldsOf(t) {
		keys = append(keys, f.Tag.Get("yaml"))
	}
	return keys
}
