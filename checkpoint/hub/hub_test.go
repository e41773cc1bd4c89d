package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/checkpoint/hub/hubtest"
)

// some are the files of a model in two shards, and others that are not wanted.
func some() map[string][]byte {
	shard := func(seed byte) []byte {
		sum := sha256.Sum256([]byte{seed})
		return bytes.Repeat(sum[:], 2000) // 64 kB
	}
	return map[string][]byte{
		"config.json":                      []byte(`{"model_type":"llama"}`),
		"tokenizer.json":                   bytes.Repeat([]byte("{}"), 5000),
		"merges.txt":                       []byte("a b\n"),
		"model-00001-of-00002.safetensors": shard(1),
		"model-00002-of-00002.safetensors": shard(2),
		"model.safetensors.index.json":     []byte("{}"),
		"added_tokens.json":                {},
		"pytorch_model.bin":                []byte("a program"),
		"README.md":                        []byte("# name"),
		"onnx/model.safetensors":           []byte("another"),
	}
}

var wanted = []string{
	"added_tokens.json", "config.json", "hub.json", "merges.txt", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
	"model.safetensors.index.json", "tokenizer.json",
}

// client asks a hub, and notes how long it would wait.
func client(t *testing.T, h *hubtest.Hub, token string) (c *Client, waits *[]time.Duration) {
	t.Helper()
	c, err := NewClient(h.Getenv(token))
	if err != nil {
		t.Fatal(err)
	}
	waits = new([]time.Duration)
	c.wait = func(ctx context.Context, d time.Duration) error {
		*waits = append(*waits, d)
		return ctx.Err()
	}
	return c, waits
}

// compare looks at the files of a folder.
func compare(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		got, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || e.Name() != recordFile && !bytes.Equal(got, files[e.Name()]) {
			t.Errorf("%s: other content, %v", e.Name(), err)
		}
	}
	if !slices.Equal(names, wanted) {
		t.Errorf("files %q, want %q", names, wanted)
	}
}

func must(t *testing.T, name string) Ref {
	t.Helper()
	ref, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func TestPull(t *testing.T) {
	h := hubtest.New(t, some())
	c, waits := client(t, h, "")
	cache := t.TempDir()
	var last Progress
	o := Options{Cache: cache, Progress: func(p Progress) { last = p }}
	p, err := c.Pull(t.Context(), must(t, "hf:org/name"), o)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, name := range wanted {
		total += int64(len(some()[name]))
	}
	if p.Dir != filepath.Join(cache, "org--name", hubtest.Commit) || p.Commit != hubtest.Commit || p.Bytes != total || last.DoneBytes != total || last.TotalBytes != total {
		t.Errorf("%+v, %+v; want %d bytes", p, last, total)
	}
	compare(t, p.Dir, some())
	if left, err := filepath.Glob(filepath.Join(cache, "org--name", "*")); err != nil || len(left) != 1 || len(*waits) > 0 {
		t.Errorf("left: %q, %v; waited %v", left, err, *waits)
	}
	h.Requests()
	if p, err = c.Pull(t.Context(), must(t, "hf:org/name@refs/pr/1"), o); err != nil || p.Bytes != 0 {
		t.Errorf("again: %+v, %v", p, err)
	}
	if r := h.Requests(); len(r) != 1 || r[0].Path != "/api/models/org/name/revision/refs%2Fpr%2F1" {
		t.Errorf("asked again: %+v", r)
	}
	if dir, ok := Newest(must(t, "hf:org/name"), cache); !ok || dir != p.Dir {
		t.Errorf("the newest in the cache is %s, %v", dir, ok)
	}
	if dir, ok := Newest(must(t, "hf:org/other"), cache); ok {
		t.Errorf("another model is in %s", dir)
	}
	if p, err = c.Pull(t.Context(), must(t, "hf:org/name@"+hubtest.Commit), o); err != nil || p.Bytes != 0 || len(h.Requests()) > 0 {
		t.Errorf("a commit that is here: %+v, %v, and requests", p, err)
	}
}

// TestAnotherCommitIsRefused: who names a commit gets that one or none, of whatever mirror.
func TestAnotherCommitIsRefused(t *testing.T) {
	h := hubtest.New(t, some())
	h.AnyRevision = true
	c, _ := client(t, h, "")
	for _, other := range []string{strings.Repeat("b", 40), strings.Repeat("B", 40)} {
		dir := filepath.Join(t.TempDir(), "model")
		_, err := c.Pull(t.Context(), must(t, "hf:org/name@"+other), Options{Dir: dir})
		if want := strings.ToLower(other) + " was asked for, and " + h.URL + " lists " + hubtest.Commit; !errors.Is(err, ErrBadAnswer) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Error("there is a folder all the same")
		}
	}
}

// TestACommitIsNamedByItsBeginning: what comes is the one commit that begins with it, or nothing.
func TestACommitIsNamedByItsBeginning(t *testing.T) {
	h := hubtest.New(t, some())
	c, _ := client(t, h, "")
	cache := t.TempDir()
	begins := must(t, "hf:org/name@"+strings.ToUpper(hubtest.Commit[:11]))
	p, err := c.Pull(t.Context(), begins, Options{Cache: cache})
	if err != nil || p.Commit != hubtest.Commit || p.Dir != filepath.Join(cache, "org--name", hubtest.Commit) {
		t.Fatalf("%+v, %v", p, err)
	}
	if dir, ok := Newest(begins, cache); !ok || dir != p.Dir {
		t.Errorf("it is in %s, %v; want %s", dir, ok, p.Dir)
	}
	other := must(t, "hf:org/name@7777777")
	if dir, ok := Newest(other, cache); ok {
		t.Errorf("%v is in %s, which is another commit", other, dir)
	}
	for any, want := range map[bool]string{
		false: "name a commit with all 40 digits, as " + h.URL + "/org/name/commits/main has them",
		true:  "lists " + hubtest.Commit + ": name all 40 digits of it; if a branch or tag of that name is meant, those of hf:org/name@" + hubtest.Commit,
	} {
		h.AnyRevision = any
		_, err := c.Pull(t.Context(), other, Options{Cache: cache})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestPullIntoAFolder(t *testing.T) {
	h := hubtest.New(t, some())
	c, _ := client(t, h, "")
	dir := filepath.Join(t.TempDir(), "models", "mine")
	for range 2 { // it is there the second time
		if _, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, dir, some())
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "mine.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Dir: other}); !errors.Is(err, checkpoint.ErrOccupied) || !strings.Contains(err.Error(), "name a new folder") {
		t.Errorf("into a folder with other files: %v", err)
	}
}

// TestTheTokenStaysWithTheHub: it is shown to the hub and to no other host, and in no error.
func TestTheTokenStaysWithTheHub(t *testing.T) {
	h := hubtest.New(t, some())
	h.Token, h.Gated = "hf_secret", true
	c, _ := client(t, h, "hf_secret")
	if _, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	hosts := map[string]int{}
	for _, r := range h.Requests() {
		hosts[r.Host]++
		if shown := r.Authorization == "Bearer hf_secret"; shown != (r.Host == "hub") || !shown && r.Authorization != "" {
			t.Errorf("%s: authorization %q", r.Host, r.Authorization)
		}
	}
	if hosts["hub"] < 5 || hosts["cdn"] < 2 {
		t.Errorf("requests %v", hosts)
	}
	h.Fail = func(host, _ string) int { return map[string]int{"cdn": http.StatusForbidden}[host] }
	_, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "the host of the files answers 403") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name, ref, token string
		change           func(*hubtest.Hub)
		is               error
		says             []string
	}{
		{"gated", "hf:org/name", "", func(h *hubtest.Hub) { h.Gated, h.Token = true, "x" }, ErrGated, []string{"org/name is gated: accept its terms at http://127.0.0.1", "/org/name, make a token at https://huggingface.co/settings/tokens, and set HF_TOKEN"}},
		{"gated and shut", "hf:org/name", "x", func(h *hubtest.Hub) { h.Gated, h.Shut, h.Token = true, true, "x" }, ErrGated, []string{"the account of your HF_TOKEN may not read it yet"}},
		{"no such model", "hf:org/other", "", func(*hubtest.Hub) {}, ErrNotFound, []string{"org/other is not found on the hub: check the spelling; a private one needs a token"}},
		{"private", "hf:org/name", "", func(h *hubtest.Hub) { h.Token = "x" }, ErrNotFound, []string{"a private one needs"}},
		{"no such revision", "hf:org/name@v9", "", func(*hubtest.Hub) {}, ErrNotFound, []string{"revision v9 of org/name", "/tree/main lists its branches"}},
		{"down", "hf:org/name", "", func(h *hubtest.Hub) { h.Fail = func(string, string) int { return 503 } }, nil, []string{"the hub answers 503 Service Unavailable, after 6 attempts: try again later, or name a mirror in HF_ENDPOINT"}},
	} {
		h := hubtest.New(t, some())
		c.change(h)
		asker, _ := client(t, h, c.token)
		dir := filepath.Join(t.TempDir(), "model")
		_, err := asker.Pull(t.Context(), must(t, c.ref), Options{Dir: dir})
		for _, says := range append(c.says, c.ref) {
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", c.name, err, says)
			}
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: there is a folder all the same", c.name)
		}
	}
}

// TestBusyHubIsAskedAgain at the time that it says.
func TestBusyHubIsAskedAgain(t *testing.T) {
	h := hubtest.New(t, some())
	left := 3
	h.Fail = func(host, _ string) int {
		if host == "cdn" && left > 0 {
			left--
			return http.StatusTooManyRequests
		}
		return 0
	}
	c, waits := client(t, h, "")
	p, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, p.Dir, some())
	if !slices.Equal(*waits, []time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}) {
		t.Errorf("waited %v", *waits)
	}
}

// TestCutConnectionsGoOn asks for the rest after each, as long as something comes.
func TestCutConnectionsGoOn(t *testing.T) {
	for _, noRanges := range []bool{false, true} {
		h := hubtest.New(t, some())
		h.Cuts, h.CutBytes, h.NoRanges = 4, 15_000, noRanges
		c, waits := client(t, h, "")
		var last Progress
		p, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: t.TempDir(), Progress: func(p Progress) { last = p }})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, p.Dir, some())
		if last.DoneBytes != last.TotalBytes || last.ResumedBytes != 0 || len(*waits) != 4 {
			t.Errorf("%+v, waited %v", last, *waits)
		}
		var ranges []string
		for _, r := range h.Requests() {
			if r.Host == "cdn" && r.Range != "" {
				ranges = append(ranges, r.Range)
			}
		}
		if !noRanges && !slices.Equal(ranges, []string{"bytes=15000-", "bytes=30000-", "bytes=45000-", "bytes=60000-"}) {
			t.Errorf("asked for %q", ranges)
		}
	}
}

// TestEachTryIsSaid before the wait for it, with why, and how many are left: none of them is silent.
func TestEachTryIsSaid(t *testing.T) {
	h := hubtest.New(t, some())
	h.Fail = func(string, string) int { return 503 }
	c, waits := client(t, h, "")
	var told []Retry
	_, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: t.TempDir(), Retrying: func(r Retry) { told = append(told, r) }})
	if err == nil || len(told) != maxAttempts-1 || len(*waits) != len(told) {
		t.Fatalf("%v; told %v, waited %v", err, told, *waits)
	}
	for i, r := range told {
		if r.Wait != (*waits)[i] || r.Left != maxAttempts-1-i || !strings.Contains(r.Why.Error(), "the hub answers 503 Service Unavailable") {
			t.Errorf("try %d: %+v after %v", i, r, (*waits)[i])
		}
	}
}

// TestAnEndedPullGoesOn with what is there, and with another client.
func TestAnEndedPullGoesOn(t *testing.T) {
	h := hubtest.New(t, some())
	cache := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := client(t, h, "")
	h.Cuts, h.CutBytes = 1, 40_000
	c.wait = func(context.Context, time.Duration) error { cancel(); return ctx.Err() } // at the cut
	if _, err := c.Pull(ctx, must(t, "hf:org/name"), Options{Cache: cache}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	h.Requests()
	c, _ = client(t, h, "")
	var first, last Progress
	p, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: cache, Progress: func(p Progress) {
		if first.TotalBytes == 0 {
			first = p
		}
		last = p
	}})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, p.Dir, some())
	if last.DoneBytes != last.TotalBytes || last.ResumedBytes < 40_000 || p.Bytes != last.TotalBytes-last.ResumedBytes {
		t.Errorf("%+v, %+v", last, p)
	}
	asked := 0
	for _, r := range h.Requests() {
		if strings.Contains(r.Path, "resolve") {
			asked++
		}
		if strings.HasSuffix(r.Path, "/model-00001-of-00002.safetensors") && r.Range != "bytes=40000-" {
			t.Errorf("asked for %+v", r)
		}
	}
	if asked != 2 { // the rest of one, and the other
		t.Errorf("%d files were asked for", asked)
	}
}

// TestWrongBytesAreNoticed: once is mended, twice is an error, and what was wrong does not stay.
func TestWrongBytesAreNoticed(t *testing.T) {
	for _, name := range []string{"model-00001-of-00002.safetensors", "config.json", "tokenizer.json"} {
		for _, noSums := range []bool{false, true} { // in the list: then the hub says the sum with the file
			for times := 1; times <= 2; times++ {
				h := hubtest.New(t, some())
				h.NoSums = noSums
				left := times
				h.Change = func(of string, content []byte) []byte {
					if of == name && left > 0 {
						left--
						content[0] ^= 1
					}
					return content
				}
				c, _ := client(t, h, "")
				cache := t.TempDir()
				p, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: cache})
				if times == 1 && err != nil || times == 2 && (!errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), name)) {
					t.Fatalf("%s, %d times: %v", name, times, err)
				}
				if times == 2 {
					p, err = c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: cache})
				}
				if err != nil {
					t.Fatal(err)
				}
				compare(t, p.Dir, some())
			}
		}
	}
}

// TestFilesWithoutAChecksumAreRefused before a byte of them comes, and where an earlier call left all of their bytes.
func TestFilesWithoutAChecksumAreRefused(t *testing.T) {
	h := hubtest.New(t, some())
	h.NoSums, h.NoEtags = true, true
	c, _ := client(t, h, "")
	dir := filepath.Join(t.TempDir(), "model")
	refused := func() {
		t.Helper()
		var last Progress
		_, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Dir: dir, Progress: func(p Progress) { last = p }})
		if want := h.URL + " says no checksum of config.json"; !errors.Is(err, ErrBadAnswer) || !strings.Contains(err.Error(), want) || last.DoneBytes != 0 {
			t.Errorf("%v, want %q; %d bytes came", err, want, last.DoneBytes)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Error("there is a folder all the same")
		}
	}
	refused()
	part := filepath.Join(dir+partialSuffix, "config.json"+partSuffix)
	if err := os.WriteFile(part, some()["config.json"], 0o600); err != nil {
		t.Fatal(err)
	}
	refused()
	h.NoEtags = false // sums with the files are enough
	if err := os.WriteFile(part, some()["config.json"], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	compare(t, dir, some())
}

// TestOddAnswersAreRefused: longer files, other ranges.
func TestOddAnswersAreRefused(t *testing.T) {
	h := hubtest.New(t, some())
	h.Change = func(_ string, content []byte) []byte { return append(content, 'x') }
	c, _ := client(t, h, "")
	if _, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: t.TempDir()}); !errors.Is(err, ErrBadAnswer) || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("longer: %v", err)
	}
	h = hubtest.New(t, some())
	h.Cuts, h.CutBytes = 1, 15_000
	h.Change = func(_ string, content []byte) []byte {
		if h.Cuts == 0 && len(content) > 20_000 {
			return content[:20_000]
		}
		return content
	}
	c, _ = client(t, h, "")
	if _, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: t.TempDir()}); !errors.Is(err, ErrBadAnswer) || !strings.Contains(err.Error(), `want "bytes 15000-63999/64000"`) {
		t.Errorf("another range: %v", err)
	}
}

// TestShortAnswersEnd: a host that never has all of a file is not asked for ever.
func TestShortAnswersEnd(t *testing.T) {
	h := hubtest.New(t, some())
	h.Change = func(_ string, content []byte) []byte { return content[:min(len(content), 20_000)] }
	c, waits := client(t, h, "")
	if _, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: t.TempDir()}); err == nil || len(*waits) > 2*maxAttempts {
		t.Errorf("%v after %d waits", err, len(*waits))
	}
}

// TestConfigIsSeenBeforeTheWeights because an unknown model is not worth the download.
func TestConfigIsSeenBeforeTheWeights(t *testing.T) {
	h := hubtest.New(t, some())
	c, _ := client(t, h, "")
	no := errors.New("not this one")
	_, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Cache: t.TempDir(), Config: func(text []byte) error {
		if string(text) != `{"model_type":"llama"}` {
			t.Errorf("config %q", text)
		}
		return no
	}})
	if !errors.Is(err, no) {
		t.Error(err)
	}
	for _, r := range h.Requests() {
		if r.Host == "cdn" {
			t.Errorf("fetched %s before", r.Path)
		}
	}
}

func TestOnlyOnePullAtATime(t *testing.T) {
	h := hubtest.New(t, some())
	c, _ := client(t, h, "")
	dir := filepath.Join(t.TempDir(), "model")
	release, err := checkpoint.Lock(dir + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := c.Pull(t.Context(), must(t, "hf:org/name"), Options{Dir: dir}); !errors.Is(err, checkpoint.ErrLocked) {
		t.Error(err)
	}
}

func TestListing(t *testing.T) {
	const commit = `"sha":"` + hubtest.Commit + `"`
	sibling := func(name, size string) string { return fmt.Sprintf(`{"rfilename":%q,"size":%s}`, name, size) }
	weights := sibling("model.safetensors", "5")
	for _, c := range []struct {
		answer string
		is     error
		says   string
		files  string
	}{
		{`{` + commit + `,"siblings":[` + weights + `,` + sibling("config.json", "2") + `,` + sibling("model-00001-of-00001.safetensors", "9") + `]}`, nil, "", "[config.json model.safetensors]"},
		{`{` + commit + `,"siblings":[` + sibling("adapter_model.safetensors", "5") + `,` + sibling("adapter_config.json", "2") + `]}`, nil, "", "[adapter_config.json adapter_model.safetensors]"},
		{`{` + commit + `,"siblings":[` + sibling("pytorch_model.bin", "5") + `,` + sibling("config.json", "2") + `]}`, ErrNoWeights, `no safetensors but "pytorch_model.bin", a pickle: that is a program`, ""},
		{`{` + commit + `,"siblings":[` + sibling("config.json", "2") + `]}`, ErrNoWeights, "hold no weights", ""},
		{`{` + commit + `,"siblings":[` + weights + `]}`, ErrNoWeights, "no config.json", ""},
		{`{` + commit + `,"siblings":[` + weights + `,` + sibling("config.json", "3e9") + `]}`, ErrBadAnswer, "", ""},
		{`{` + commit + `,"siblings":[` + weights + `,` + sibling("tokenizer.json", "3000000000") + `]}`, ErrBadAnswer, "tokenizer.json of 3000000000 bytes", ""},
		{`{` + commit + `,"siblings":[{"rfilename":"model.safetensors"}]}`, ErrBadAnswer, "of -1 bytes", ""},
		{`{"sha":"../x","siblings":[` + weights + `]}`, ErrBadAnswer, "commit", ""},
		{`<html>`, ErrBadAnswer, "", ""},
	} {
		l, err := parseListing([]byte(c.answer))
		if !errors.Is(err, c.is) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", c.answer, err, c.is, c.says)
		}
		var names []string
		for _, f := range l.files {
			names = append(names, f.name)
		}
		if err == nil && fmt.Sprint(names) != c.files {
			t.Errorf("%s: %v, want %s", c.answer, names, c.files)
		}
	}
}

func TestParse(t *testing.T) {
	for name, want := range map[string]string{
		"hf:org/name": "org/name main", "hf:gpt2": "gpt2 main", "hf:a.b/C-d_e.1@refs/pr/3": "a.b/C-d_e.1 refs/pr/3", "hf:org/name@v1.0": "org/name v1.0",
		"org/name": "", "hf:": "", "hf:a/b/c": "", "hf:../x": "", "hf:a/..": "", "hf:a/b@": "", "hf:a/b@../x": "", "hf:a/b@x y": "", "hf:a b": "", "hf:a/b?c": "",
	} {
		ref, err := Parse(name)
		if (err == nil) != (want != "") || err == nil && ref.Repo+" "+ref.Revision != want || err != nil && !errors.Is(err, ErrBadRef) {
			t.Errorf("%s: %+v, %v; want %q", name, ref, err, want)
		}
		if err == nil && ref.String() != name {
			t.Errorf("%s is written %s", name, ref)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct{ endpoint, token, says string }{
		{"", "", ""},
		{"https://hf-mirror.example/base/", "hf_x", ""},
		{"http://127.0.0.1:8080", "hf_x", ""},
		{"http://mirror.example", "", ""},
		{"http://mirror.example", "hf_x", "over which others could read HF_TOKEN"},
		{"ftp://mirror.example", "", "want the address of a mirror"},
		{"mirror.example", "", "want the address of a mirror"},
		{"https://user:pass@mirror.example", "", "want the address of a mirror"},
		{"", "hf_secret\x00", "characters that are in no token"},
	} {
		_, err := NewClient(func(name string) string { return map[string]string{EndpointEnv: c.endpoint, TokenEnv: c.token}[name] })
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrSettings) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hf_")) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// FuzzListing: whatever the hub answers, files are within bounds and in no other folder.
func FuzzListing(f *testing.F) {
	f.Add([]byte(`{"sha":"` + hubtest.Commit + `","siblings":[{"rfilename":"model.safetensors","size":5,"lfs":{"sha256":"x","size":7}},{"rfilename":"config.json","size":2,"blobId":"y"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parseListing(text)
		if err != nil {
			if !errors.Is(err, ErrBadAnswer) && !errors.Is(err, ErrNoWeights) {
				t.Fatal(err)
			}
			return
		}
		if !json.Valid(text) || !commitPattern.MatchString(l.commit) || len(l.files) < 2 || len(l.files) > maxFiles {
			t.Fatalf("%q: %+v", text, l)
		}
		for _, file := range l.files {
			if file.name != filepath.Base(file.name) || file.size < 0 || file.size > maxWeightsBytes {
				t.Fatalf("%+v", file)
			}
		}
	})
}
