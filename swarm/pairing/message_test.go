package pairing

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pnode/swarm/admission"
)

// messages has one of each kind.
var messages = []message{
	{Kind: kindWho},
	{Kind: kindCommit, Number: number{1, 2, 3}, Text: "laptop"},
	{Kind: kindPoll},
	{Kind: kindReveal, Number: number{31: 9}},
	{Kind: kindAbout, Text: "run-1", More: "desk"},
	{Kind: kindNumber, Number: number{7}},
	{Kind: kindWaiting},
	{Kind: kindRefused, Text: "the owner has entered another code"},
	{Kind: kindInvite, Text: strings.Repeat("x", maxTextBytes)},
}

func TestMessages(t *testing.T) {
	for _, m := range messages {
		b := m.append(nil)
		got, err := decodeMessage(b)
		if err != nil || !reflect.DeepEqual(got, m) || len(b) > maxMessageBytes {
			t.Errorf("%+v: %+v, %v", m, got, err)
		}
	}
	good := message{Kind: kindAbout, Text: "run", More: "desk"}.append(nil)
	for want, b := range map[string][]byte{
		"want at least":    good[:10],
		"unknown version":  append([]byte{9}, good[1:]...),
		"kind 0":           append([]byte{messageVersion, 0}, good[2:]...),
		"kind 10":          append([]byte{messageVersion, byte(kindInvite) + 1}, good[2:]...),
		"a text is":        good[:len(good)-6],
		"4 bytes, 3 are":   good[:len(good)-1],
		"after the end":    append(bytes.Clone(good), 0),
		"cannot be shown":  message{Kind: kindAbout, Text: "a\x1b[2J"}.append(nil),
		"1025 bytes, at m": message{Kind: kindAbout, Text: strings.Repeat("x", maxTextBytes+1)}.append(nil),
	} {
		if _, err := decodeMessage(b); !errors.Is(err, admission.ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// FuzzMessage: what decodes has printable texts within their bound, and encodes to the same bytes.
func FuzzMessage(f *testing.F) {
	for _, m := range messages {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		if !bytes.Equal(m.append(nil), b) || len(b) > maxMessageBytes || strings.ContainsAny(m.Text+m.More, "\x1b\n\x00") {
			t.Fatalf("%q: %+v", b, m)
		}
	})
}
