package listen

import "testing"

func TestListenAddresses(t *testing.T) {
	for _, bad := range []string{"", "4001", "example.org:1", "127.0.0.1:70000"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
	for in, want := range map[string]string{":1": "0.0.0.0:1", "localhost:2": "127.0.0.1:2", "[::]:3": "[::]:3"} {
		if a, err := Parse(in); err != nil || a.String() != want {
			t.Errorf("%q: %s %v, want %s", in, a, err, want)
		}
	}
}
