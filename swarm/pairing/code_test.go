package pairing

import (
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
)

func exampleTranscript() transcript {
	return transcript{
		Newcomer: peer.ID("newcomer"), Owner: peer.ID("owner"), NewcomerName: "laptop", OwnerName: "desk", Run: "run-1",
		NewcomerNumber: number{1}, OwnerNumber: number{2},
	}
}

// TestCodeIsOfEverything: the code of a request has six digits, stays what it is, and changes with each part of it.
func TestCodeIsOfEverything(t *testing.T) {
	base := exampleTranscript()
	if got, want := base.code(), "881184"; got != want {
		t.Errorf("code %s, want %s: both ends have to compute the same in every release", got, want)
	}
	for name, change := range map[string]func(*transcript){
		"newcomer":          func(x *transcript) { x.Newcomer = "other" },
		"owner":             func(x *transcript) { x.Owner = "other" },
		"newcomer's name":   func(x *transcript) { x.NewcomerName = "lapto" },
		"owner's name":      func(x *transcript) { x.OwnerName = "pdesk" },
		"run":               func(x *transcript) { x.Run = "run-2" },
		"newcomer's number": func(x *transcript) { x.NewcomerNumber[31] = 1 },
		"owner's number":    func(x *transcript) { x.OwnerNumber[31] = 1 },
		"ends of names":     func(x *transcript) { x.NewcomerName, x.OwnerName = "laptopd", "esk" },
	} {
		other := base
		if change(&other); other.code() == base.code() || len(other.code()) != codeDigits {
			t.Errorf("%s: code %s", name, other.code())
		}
	}
}

// TestCommitmentBinds the newcomer's number, its name and both ends, and not what the owner's end says later.
func TestCommitmentBinds(t *testing.T) {
	base := exampleTranscript()
	for name, change := range map[string]func(*transcript){
		"newcomer":          func(x *transcript) { x.Newcomer = "other" },
		"owner":             func(x *transcript) { x.Owner = "other" },
		"newcomer's name":   func(x *transcript) { x.NewcomerName = "other" },
		"newcomer's number": func(x *transcript) { x.NewcomerNumber[0]++ },
	} {
		other := base
		if change(&other); other.commitment() == base.commitment() {
			t.Errorf("%s changes nothing", name)
		}
	}
	other := base
	if other.OwnerNumber[0]++; other.commitment() != base.commitment() {
		t.Error("the commitment depends on what is not known yet")
	}
}

// TestCodesAreSpread over all values: of 2,000 numbers about two share a code by chance.
func TestCodesAreSpread(t *testing.T) {
	seen, x := map[string]bool{}, exampleTranscript()
	for i := range 2000 {
		x.OwnerNumber[0], x.OwnerNumber[1] = byte(i), byte(i>>8)
		seen[x.code()] = true
	}
	if len(seen) < 1980 {
		t.Errorf("%d codes of 2000 numbers", len(seen))
	}
}

func TestParseCode(t *testing.T) {
	for text, want := range map[string]string{"012345": "012345", "012 345": "012345", " 012-345 ": "012345", "12345": "", "1234567": "", "12345a": "", "": "", "١٢٣": ""} {
		got, err := ParseCode(text)
		if got != want && err == nil || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if err == nil && strings.ReplaceAll(Spoken(got), " ", "") != want {
			t.Errorf("%q is spoken %q", text, Spoken(got))
		}
	}
}
