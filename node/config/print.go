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
	fields := reflect.ValueOf(&c).Elem()
	for i, key := range Keys() {
		fmt.Fprintf(&b, "%s: %s\n", key, text(fields.Field(i)))
	}
	_, err := io.WriteString(w, b.String())
	return err
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
	case fmt.Stringer: // Count and Bytes
		return v.String()
	default:
		return fmt.Sprint(field.Interface())
	}
}

// plain matches the texts that need no quotes: words and paths.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// notText are the plain words that some YAML reader takes for something else.
var notText = []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}

// quote returns s as a YAML scalar.
func quote(s string) string {
	if plain.MatchString(s) && !slices.Contains(notText, strings.ToLower(s)) {
		return s
	}
	// Go's escapes of valid UTF-8 are all YAML's too (YAML 1.2, section 5.7), but for \x7f,
	// which means the same.
	return strconv.Quote(s)
}
