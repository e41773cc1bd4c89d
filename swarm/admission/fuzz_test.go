package admission

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
)

// samples are valid messages of each kind.
func samples(f testing.TB) (v Invite, capability []byte, addrs []ma.Multiaddr) {
	f.Helper()
	id := testIdentity(f)
	a := ma.StringCast("/ip4/192.0.2.1/udp/4001/quic-v1")
	v, err := testOwner(f).Invite(InviteOptions{Run: testRun, Addrs: []string{a.String() + "/p2p/" + id.id.String()}}, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	if capability, err = v.Redeem(id, time.Now()); err != nil {
		f.Fatal(err)
	}
	return v, capability, []ma.Multiaddr{a}
}

// checkDecoded: what is accepted is written back as it was; what is not is called malformed.
func checkDecoded(t *testing.T, in, out []byte, err error) {
	t.Helper()
	switch {
	case err != nil && !errors.Is(err, ErrMalformed):
		t.Errorf("error %v does not wrap ErrMalformed", err)
	case err == nil && !bytes.Equal(in, out):
		t.Errorf("%x was accepted and is written as %x", in, out)
	}
}

// checkReadAgain does that for messages with addresses, of which odd ones are left out: what is left is read as it is.
func checkReadAgain(t *testing.T, in, out []byte, err error, again func([]byte) ([]byte, error)) {
	t.Helper()
	if err != nil {
		checkDecoded(t, in, nil, err)
		return
	}
	if len(out) > len(in) {
		t.Errorf("%x is written as %x", in, out)
	}
	written, err := again(out)
	if err != nil {
		t.Fatalf("%x was accepted, is written as %x, and not read again: %v", in, out, err)
	}
	checkDecoded(t, out, written, nil)
}

func FuzzParseInvite(f *testing.F) {
	v, _, _ := samples(f)
	f.Add(v.String())
	f.Add(v.Addrs[0])
	f.Add("pnode1-")
	f.Add("pnode2-AAAA")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseInvite(s)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("error %v does not wrap ErrMalformed", err)
			}
			return
		}
		again, err := ParseInvite(v.String())
		if err != nil || again.String() != v.String() {
			t.Errorf("%q reads back as %q, %v", v, again, err)
		}
	})
}

// FuzzDecodeInvite goes past the checksum.
func FuzzDecodeInvite(f *testing.F) {
	v, _, _ := samples(f)
	s, err := ParseInvite(v.String())
	if err != nil {
		f.Fatal(err)
	}
	body, err := s.body()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeInvite(b)
		if err != nil {
			checkDecoded(t, b, nil, err)
			return
		}
		again, err := v.body()
		checkDecoded(t, b, again, err)
	})
}

func FuzzDecodeCapability(f *testing.F) {
	_, c, _ := samples(f)
	f.Add(c)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCapability(b)
		checkDecoded(t, b, c.Encode(), err)
	})
}

func FuzzDecodeGrant(f *testing.F) {
	v, _, _ := samples(f)
	f.Add(v.Grant.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := DecodeGrant(b)
		checkDecoded(t, b, g.Encode(), err)
		if err == nil && g.Verify(Run{testRun, v.OwnerKey}, time.Now()) == nil && !bytes.Equal(b, v.Grant.Encode()) {
			t.Errorf("%x is taken for the owner's", b)
		}
	})
}

func FuzzDecodeClaim(f *testing.F) {
	v, _, _ := samples(f)
	id := testIdentity(f).ID()
	c, err := v.Claim(id, id)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(c.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeClaim(b)
		checkDecoded(t, b, c.Append(nil), err)
	})
}

func FuzzDecodeOffer(f *testing.F) {
	v, _, _ := samples(f)
	f.Add(Offer{Run: Run{testRun, v.OwnerKey}, Grant: v.Grant}.Append(nil))
	f.Add(RefuseClaim(ErrInviteUsed).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeOffer(b)
		checkDecoded(t, b, o.Append(nil), err)
	})
}

func FuzzDecodeHello(f *testing.F) {
	_, c, addrs := samples(f)
	f.Add(Hello{Capability: c, Addrs: addrs}.Append(nil))
	f.Add(Hello{}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		again := func(b []byte) ([]byte, error) {
			h, err := DecodeHello(b)
			return h.Append(nil), err
		}
		out, err := again(b)
		checkReadAgain(t, b, out, err, again)
	})
}

func FuzzDecodeReply(f *testing.F) {
	_, c, addrs := samples(f)
	f.Add(Reply{Hello: Hello{Capability: c, Addrs: addrs}}.Append(nil))
	f.Add(Reply{Code: 2, Detail: "no"}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		again := func(b []byte) ([]byte, error) {
			r, err := DecodeReply(b)
			return r.Append(nil), err
		}
		out, err := again(b)
		checkReadAgain(t, b, out, err, again)
		r, err := DecodeReply(b)
		if err == nil && r.Code != 0 && refusalFrom(r.Code, r.Detail) == nil {
			t.Error("a refusal is no error")
		}
	})
}

func FuzzDecodeRecords(f *testing.F) {
	_, c, addrs := samples(f)
	f.Add(AppendRecords(nil, []Record{{c, addrs}, {c, nil}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		again := func(b []byte) ([]byte, error) {
			r, err := DecodeRecords(b)
			return AppendRecords(nil, r), err
		}
		out, err := again(b)
		checkReadAgain(t, b, out, err, again)
	})
}

// Names that a terminal obeys, and those that are too long, are left out of what members say of themselves and of others.
// Refusals are told without them.
func TestHostileWords(t *testing.T) {
	_, c, addrs := samples(t)
	for name, text := range map[string]string{"escape sequence": "\x1b[2Jdesk.example", "turned around": "\u202egro.elpmaxe", "long": strings.Repeat("x", 300)} {
		a, err := ma.NewMultiaddr("/dns4/" + text + "/tcp/4001")
		if err != nil {
			t.Fatal(err)
		}
		two := appendBytes(appendBytes([]byte{2, 0}, a.Bytes()), addrs[0].Bytes())
		hello := Hello{Capability: c}.Append(nil)
		if h, err := DecodeHello(append(hello[:len(hello)-2], two...)); err != nil || !slices.EqualFunc(h.Addrs, addrs, ma.Multiaddr.Equal) {
			t.Errorf("%s: a greeting is read with %q, %v", name, h.Addrs, err)
		}
		r, err := DecodeRecords(append(appendBytes([]byte{1, 0}, c), two...))
		if err != nil || len(r) != 1 || !slices.EqualFunc(r[0].Addrs, addrs, ma.Multiaddr.Equal) {
			t.Errorf("%s: a list of peers is read as %q, %v", name, r, err)
		}
		if got := Acceptable(testIdentity(t).ID(), []ma.Multiaddr{a, addrs[0]}); !slices.EqualFunc(got, addrs, ma.Multiaddr.Equal) {
			t.Errorf("%s: %q are kept", name, got)
		}
	}
	told := Reply{Code: 1, Detail: "no\x1b[31m\n" + strings.Repeat("é", maxDetailBytes)}.Append(nil)
	r, err := DecodeReply(told)
	if err != nil || !plan.Printable(r.Err().Error(), maxDetailBytes) {
		t.Errorf("a refusal: %q, %v", r.Err(), err)
	}
}
