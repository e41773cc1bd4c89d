package strict

import (
	"encoding/json"
	"errors"
	"testing"
)

type pair struct{ A, B int }

func TestDecode(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"a":1,"b":2}`: true, " {} \n": true, `{"a":1,"c":2}`: false, `{"a":1.5}`: false, `{`: false, ``: false,
	} {
		var p pair
		if err := Decode([]byte(text), &p); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{`{}{}`, `{} x`, `{}]`} {
		var p pair
		if err := Decode([]byte(text), &p); !errors.Is(err, ErrTrailing) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzDecode: what is accepted is JSON that says the same when it is written again.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{"a":1,"b":2}`, `{}{}`, `{"c":1}`, `{"A":1,"a":2}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second pair
		if Decode(data, &first) != nil {
			return
		}
		again, err := json.Marshal(first)
		if err != nil || Decode(again, &second) != nil || first != second || !json.Valid(data) {
			t.Errorf("%q is %+v, then %q is %+v: %v", data, first, again, second, err)
		}
	})
}
