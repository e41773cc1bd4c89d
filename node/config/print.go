package config

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Print writes a configuration as a run.yaml that loads back to the same value.
func (c Config) Print(w io.Writer) error {
	var b strings.Builder
	printStruct(&b, reflect.ValueOf(&c).Elem(), "", true)
	_, err := io.WriteString(w, b.String())
	return err
}

// Print writes an emulation file that loads back to the same value.
func (e Emulation) Print(w io.Writer) error {
	var b strings.Builder
	printStruct(&b, reflect.ValueOf(&e).Elem(), "", false)
	_, err := io.WriteString(w, b.String())
	return err
}

// printStruct writes the fields of a struct, nested ones two blanks further in. It leaves out those that are zero unless
// zeros says otherwise.
func printStruct(b *strings.Builder, v reflect.Value, indent string, zeros bool) {
	for _, f := range fieldsOf(v.Type()) {
		key, field := f.Tag.Get("yaml"), v.FieldByIndex(f.Index)
		switch {
		case field.IsZero() && !zeros:
		case field.Kind() == reflect.Struct:
			fmt.Fprintf(b, "%s%s:\n", indent, key)
			printStruct(b, field, indent+"  ", zeros)
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			fmt.Fprintf(b, "%s%s:\n", indent, key)
			for j := range field.Len() {
				var element strings.Builder
				printStruct(&element, field.Index(j), indent+"    ", zeros)
				fmt.Fprintf(b, "%s  - %s", indent, strings.TrimPrefix(element.String(), indent+"    "))
			}
		default:
			fmt.Fprintf(b, "%s%s: %s\n", indent, key, text(field))
		}
	}
}

// text returns the YAML form of a field, on one line.
func text(field reflect.Value) string {
	switch v := field.Addr().Interface().(type) {
	case *[]string:
		quoted := make([]string, len(*v))
		for i, s := range *v {
			quoted[i] = quote(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case *string:
		return quote(*v)
	case *float64:
		return strconv.FormatFloat(*v, 'g', -1, 64)
	case *RelayRate:
		return quote(v.String())
	case *LostMajority:
		return quote(v.String())
	case fmt.Stringer: // Count and Bytes
		return v.String()
	default:
		return fmt.Sprint(field.Interface())
	}
}

// unquoted matches the texts that need no quotes: words and paths.
var unquoted = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// notText are the plain words that some YAML reader takes for something else.
var notText = []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}

// quote returns s as a YAML scalar.
func quote(s string) string {
	if unquoted.MatchString(s) && !slices.Contains(notText, strings.ToLower(s)) {
		return s
	}
	// Go's escapes of valid UTF-8 are all YAML's too (YAML 1.2, section 5.7), but for \x7f,
	// which means the same.
	return strconv.Quote(s)
}
