package plain

import "testing"

func TestQuote(t *testing.T) {
	for _, c := range []struct{ goos, path, want string }{
		{"linux", "/home/ada/run-7", "/home/ada/run-7"},
		{"darwin", "/Users/ada/Library/Application Support/pnode", "'/Users/ada/Library/Application Support/pnode'"},
		{"linux", "/tmp/it's $HOME", `'/tmp/it'\''s $HOME'`},
		{"linux", "/tmp/日本", "/tmp/日本"},
		{"linux", `/tmp/a\b`, `'/tmp/a\b'`},
		{"linux", "", "''"},
		{"windows", `C:\Users\ada\run`, `C:\Users\ada\run`},
		{"windows", `C:\Program Files\run`, `"C:\Program Files\run"`},
	} {
		if got := quote(c.path, c.goos); got != c.want {
			t.Errorf("%s on %s: %s, want %s", c.path, c.goos, got, c.want)
		}
	}
}
