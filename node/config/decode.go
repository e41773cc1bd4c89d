package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// decode sets the field of a key from its node. It reads scalars by the type of the
// field, not by how YAML would guess them: `preset: 3` is the text 3, `steps: 1.5` is
// refused rather than cut off.
func (c *Config) decode(key, value ast.Node) error {
	name := key.GetToken().Value
	i := slices.Index(Keys(), name)
	if i < 0 {
		return fmt.Errorf("unknown key %q: %s", name, didYouMean(name, Keys()))
	}
	texts, err := scalars(value)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	field := reflect.ValueOf(c).Elem().Field(i)
	if list, ok := field.Addr().Interface().(*[]string); ok {
		*list = texts
		return nil
	}
	if _, isList := value.(*ast.SequenceNode); isList {
		return fmt.Errorf("%s: want one value, not a list", name)
	}
	if err := set(field, texts[0]); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// scalars are the texts of a scalar, or of the elements of a list.
func scalars(n ast.Node) ([]string, error) {
	switch n := n.(type) {
	case *ast.NullNode:
		return nil, errors.New("no value: give one or remove the key")
	case *ast.LiteralNode: // | and >
		return []string{n.Value.Value}, nil
	case *ast.StringNode:
		return []string{n.Value}, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return []string{n.GetToken().Value}, nil
	case *ast.SequenceNode:
		var texts []string
		for _, element := range n.Values {
			if element.Type() == ast.SequenceType {
				return nil, errors.New("a list in a list: want paths")
			}
			text, err := scalars(element)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text...)
		}
		return texts, nil
	default:
		return nil, errors.New("want a plain value")
	}
}

// set parses text by the type of the field.
func set(field reflect.Value, text string) error {
	if v, ok := field.Addr().Interface().(interface{ Set(string) error }); ok {
		return v.Set(text)
	}
	var err error
	switch field.Kind() {
	case reflect.String:
		field.SetString(text)
		return nil
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q: want true or false", text)
		}
		field.SetBool(text == "true")
		return nil
	case reflect.Int:
		var v int64
		v, err = strconv.ParseInt(text, 10, strconv.IntSize)
		field.SetInt(v)
	case reflect.Uint64:
		var v uint64
		v, err = strconv.ParseUint(text, 10, 64)
		field.SetUint(v)
	case reflect.Float64:
		var v float64
		v, err = strconv.ParseFloat(text, 64)
		field.SetFloat(v)
	default:
		panic("config: a field of kind " + field.Kind().String() + " has no text form")
	}
	if err != nil {
		return fmt.Errorf("%q: want %s", text, wanted[field.Kind()])
	}
	return nil
}

// wanted describes the numbers of each kind.
var wanted = map[reflect.Kind]string{
	reflect.Int:     "a whole number",
	reflect.Uint64:  "a whole number from 0 to 18446744073709551615",
	reflect.Float64: "a number",
}
