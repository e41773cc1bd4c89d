package page

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// contents are all files by name.
func contents(t *testing.T) map[string]string {
	t.Helper()
	entries, err := files.ReadDir("files")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		b, err := files.ReadFile("files/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(b)
	}
	return all
}

func get(t *testing.T, method, name string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/", nil)
	r.URL.Path = name
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestEveryFileIsServed(t *testing.T) {
	for name, content := range contents(t) {
		resp := get(t, http.MethodGet, name)
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || string(body) != content || err != nil || resp.Header.Get("Content-Type") != types[path.Ext(name)] {
			t.Errorf("%s: %s %v %v", name, resp.Status, resp.Header, err)
		}
		for _, h := range []string{"Content-Security-Policy", "Referrer-Policy", "X-Content-Type-Options"} {
			if resp.Header.Get(h) == "" {
				t.Errorf("%s: no %s", name, h)
			}
		}
		if resp := get(t, http.MethodPost, name); resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %s", name, resp.Status)
		}
	}
	for _, name := range []string{"none.js", "../page.go", "page.go", "files/main.js", ".", "/", "a\x00.js"} {
		if resp := get(t, http.MethodGet, name); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%q: %s", name, resp.Status)
		}
	}
}

// forbidden lists what would need another host or a weaker policy, or read text as markup.
var forbidden = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|javascript:|https?://|//[a-z]+\.[a-z]| on[a-z]+=|setAttribute\('style'|localStorage|document\.cookie`)

// TestNothingFromElsewhere looks through all files for it; the name space of SVG is a name.
func TestNothingFromElsewhere(t *testing.T) {
	for name, content := range contents(t) {
		content = strings.ReplaceAll(content, "http://www.w3.org/2000/svg", "")
		if found := forbidden.FindString(content); found != "" {
			t.Errorf("%s has %q", name, found)
		}
	}
	page := contents(t)["index.html"]
	for _, inline := range []string{"<style", "style=", "<script>"} {
		if strings.Contains(page, inline) {
			t.Errorf("index.html has %s", inline)
		}
	}
}

var (
	imported = regexp.MustCompile(`from '\./([a-z]+\.js)'`)
	linked   = regexp.MustCompile(`(?:src|href)="([^"]+)"`)
	asked    = regexp.MustCompile(`\b(?:at|tell)\('([a-z]+)'`)
)

// TestThePageIsWhole: every file that one names is there, and every element that scripts ask
// for.
func TestThePageIsWhole(t *testing.T) {
	all := contents(t)
	page := all["index.html"]
	for _, m := range linked.FindAllStringSubmatch(page, -1) {
		if _, ok := all[m[1]]; !ok {
			t.Errorf("index.html names %s", m[1])
		}
	}
	elements := 0
	for name, content := range all {
		for _, m := range imported.FindAllStringSubmatch(content, -1) {
			if _, ok := all[m[1]]; !ok {
				t.Errorf("%s imports %s", name, m[1])
			}
		}
		for _, m := range asked.FindAllStringSubmatch(content, -1) {
			elements++
			if !strings.Contains(page, `id="`+m[1]+`"`) {
				t.Errorf("%s asks for #%s", name, m[1])
			}
		}
	}
	if elements < 10 {
		t.Errorf("scripts ask for %d elements", elements)
	}
	if err := xml.Unmarshal([]byte(all["icon.svg"]), new(struct{})); err != nil {
		t.Errorf("icon.svg: %v", err)
	}
}

// TestScriptsParse where Node.js is there to say so.
func TestScriptsParse(t *testing.T) {
	node, err := exec.LookPath("node")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no Node.js")
	}
	for name, content := range contents(t) {
		if path.Ext(name) != ".js" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "--check")
		cmd.Stdin = strings.NewReader(content)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// nodesSection returns the text of the nodes' section for a status, written as JavaScript, where Node.js is there.
func nodesSection(t *testing.T, status string) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no Node.js")
	}
	dir := t.TempDir()
	files := contents(t)
	files["package.json"] = `{"type": "module"}`
	files["show.js"] = `
		// An element that keeps its text, which is all that is looked at.
		class Element {
			children = [];
			style = {};
			setAttribute() {}
			append(...children) { this.children.push(...children); }
			replaceChildren(...children) { this.children = children; }
			get text() { return this.children.map((child) => child.text ?? child).join(''); }
		}
		const elements = {};
		globalThis.document = { createElement: () => new Element(), getElementById: (id) => elements[id] ??= new Element() };
		const { showSeats } = await import('./seats.js');
		const seat = (peer, first) => ({ peer, device: 'cpu', model: '', holds: [{ replica: 0, stage: first, layers: { first, end: first + 1 } }],
			parameters: 1, memory_bytes: 1, free_bytes: 2 });
		const member = (peer, name, more) => ({ peer, name, state: 'active', device: 'cpu', ...more });
		showSeats(` + status + `);
		console.log(elements.seats.text, elements.others.text);
	`
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), node, "show.js")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=en_US.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestLinksSayWhatTheyGoOver: the nodes' section names the transport of each link, and why where there is something to say.
func TestLinksSayWhatTheyGoOver(t *testing.T) {
	out := nodesSection(t, `{ peer: 'p', leader: 'p', roster: [member('p', 'desk'), member('q', 'spot')], seats: [seat('p', 0), seat('q', 1)], links: [
		{ from: 'p', to: 'q', bytes_per_s: 1e6, rtt_ms: 40, transport: 'tcp', transport_reason: 'UDP gets no answer', live: true },
		{ from: 'q', to: 'p', bytes_per_s: 1e6, rtt_ms: 40, transport: 'relay', transport_reason: 'no hole <b>fits</b>' },
	] }`)
	for _, want := range []string{"desk → spot on TCP: UDP gets no answer", "spot → desk through a relay: no hole <b>fits</b>", "20 msTCP", "20 msthrough a relay"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page does not say %q:\n%s", want, out)
		}
	}
}

// TestWhoIsSilentIsShownSinceWhen, with a part in the plan and without one, and nobody silent as active.
func TestWhoIsSilentIsShownSinceWhen(t *testing.T) {
	out := nodesSection(t, `{ peer: 'p', leader: 'p', seats: [seat('p', 0), seat('q', 1)], roster: [member('p', 'desk', { placed: true }),
		member('q', 'spot', { placed: true, state: 'silent', silent_since: '2026-07-01T14:03:10Z' }), member('r', 'lab', { state: 'silent', silent_since: new Date().toISOString() })] }`)
	if !strings.Contains(out, "spotsilent since 7/1/2026, 2:03:10") || !strings.Contains(out, "lab (silent since ") || strings.Contains(out, "active") {
		t.Errorf("the page says\n%s", out)
	}
}

// TestManyMembersAreCounted: the page names the members that a brief status lists, and counts the others.
func TestManyMembersAreCounted(t *testing.T) {
	out := nodesSection(t, `{ peer: 'p', leader: 'q', seats: [seat('p', 0)], roster: [member('p', 'desk', { placed: true }), member('q', 'lab', { placed: true }), member('r', 'spot')],
		rest: { devices: 387, links: 773, members: [{ state: 'active', device: 'cpu', placed: true, count: 386 }, { state: 'silent', device: 'gpu', count: 600 }, { state: 'gone', device: 'gpu', count: 3 }] } }`)
	for _, want := range []string{"The plan has 387 devices and 773 links more", "Without a part in the plan: spot (active; cpu), 600 nodes more (silent; gpu)."} {
		if !strings.Contains(out, want) {
			t.Errorf("the page does not say %q:\n%s", want, out)
		}
	}
}
