package tokenizer

import (
	"bytes"
	"testing"

	"golang.org/x/text/unicode/norm"
)

func TestNFC(t *testing.T) {
	below, above := string(bytes.Repeat([]byte("\u0323"), 40)), string(bytes.Repeat([]byte("\u0301"), 40))
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"e\u0301", "\u00e9"},
		{"e\u0323\u0301", "\u1eb9\u0301"},
		{"e\u0301\u0323", "\u1eb9\u0301"},
		{"\u212b\u0344", "\u00c5\u0308\u0301"},
		{"\u1112\u1161\u11ab\u11ab", "\ud55c\u11ab"},
		{"\u0958", "\u0915\u093c"}, // never composed
		{"\u09c7\u0301\u09be", "\u09c7\u0301\u09be"},
		{"e\u09be\u0301", "e\u09be\u0301"}, // blocked by a starter
		{"\u0301\u0323", "\u0323\u0301"},
		{"e\u0898\u0323", "e\u0898\u0323"}, // U+0898 came with Unicode 14
		{"a\xff\u0301\xc3", "a\xff\u0301\xc3"},
		{"xa" + above + below + "b\u0301", "x\u1ea1" + below[2:] + above + "b\u0301"},
	} {
		if got := string(appendNFC([]byte("e"), []byte(test.in))); got != "e"+test.want {
			t.Errorf("%+q became %+q, want %+q", test.in, got[1:], test.want)
		}
	}
}

// TestNFCOfCharacters compares with package norm: characters alone, and those of the
// alphabets before marks.
func TestNFCOfCharacters(t *testing.T) {
	const alphabets, assigned = 0x600, 0x12000
	for r := range rune(assigned) {
		for _, behind := range []string{"", "\u0301", "\u0323\u0308"} {
			if r > alphabets && behind != "" {
				continue
			}
			in := []byte(string(r) + behind)
			if want := norm.NFC.Bytes(in); !bytes.Equal(appendNFC(nil, in), want) || !bytes.Equal(appendDefined(nil, in), want) {
				t.Fatalf("%+q became %+q, by definition %+q, want %+q", in, appendNFC(nil, in), appendDefined(nil, in), want)
			}
		}
	}
}
