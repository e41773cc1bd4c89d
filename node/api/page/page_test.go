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
	asked    = regexp.MustCompile(`\b(?:at|tell|say)\('([a-z]+)'`)
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
	return scripted(t, `
		const { showSeats } = await import('./seats.js');
		showSeats(`+status+`);
		console.log(elements.seats.text, elements.others.text);`)
}

// scripted returns what a script prints that calls the page's, where Node.js is there. Elements keep their text.
func scripted(t *testing.T, script string) string {
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
		globalThis.document = { createElement: () => new Element(), createElementNS: () => new Element(), getElementById: (id) => elements[id] ??= new Element() };
		const seat = (peer, first) => ({ peer, device: 'cpu', model: '', holds: [{ replica: 0, stage: first, layers: { first, end: first + 1 } }],
			parameters: 1, memory_bytes: 1, free_bytes: 2 });
		const member = (peer, name, more) => ({ peer, name, state: 'active', device: 'cpu', ...more });
	` + script
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

// TestReplicasWithLocalSteps: each has a card with how far it is and what is special about it, and the newest outer step its figures. Without local steps
// nothing of it is there.
func TestReplicasWithLocalSteps(t *testing.T) {
	out := scripted(t, `
		const { showRounds } = await import('./rounds.js');
		const status = { peer: 'p', generation: 3, roster: [member('p', 'desk'), member('q', 'spot')],
			round: { from: 8, end: 12, text: 'steps 9 to 12: replica 0 (desk) waits for replica 1 (spot), at 2 of 4 inner steps' },
			replicas: [
				{ replica: 0, peer: 'p', step: 12, loss: 3.5, made: 4, of: 4, tokens_per_s: 1200, state: 'ended', text: 'has ended its part' },
				{ replica: 1, peer: 'q', step: 10, loss: 3.25, made: 2, of: 4, state: 'computes', text: 'makes <b>inner</b> steps' },
				{ replica: 2, peer: 'r', step: 0, loss: 0, made: 0, of: 4, state: 'silent', text: 'not heard of for 1 min' }],
			outer: { generation: 3, from: 4, to: 8, drift: 0.0823, bytes: 1, bytes_per_token: 0.4125, every_step_bytes_per_token: 25.1, exchange_s: 4.1, waited_share: 0.0204, hidden_s: 1.5,
				sent_bytes: 31e6, text: 'steps 5 to 8 of 2 of 3 replicas', replicas: [
					{ replica: 0, steps: 4, norm: 0.5, cosine: 0.75, round_s: 40, waited_s: 6 },
					{ replica: 1, steps: 4, norm: 4, cosine: -0.1, round_s: 40, waited_s: 4, far: 'what it learned is 8.0 times as large as what most did' },
					{ replica: 2, steps: 0, why: 'it was silent' }] } };
		const drift = [{ step: 4, mean: 0.5 }, { step: 8, mean: 0.0823 }];
		showRounds(status, drift);
		console.log(elements.apart.hidden, elements.rounds.text);
		showRounds({ ...status, generation: 4, outer: undefined }, []);
		console.log(elements.rounds.text);
		showRounds({ ...status, generation: 4 }, []);
		console.log(elements.rounds.text.includes('norm'));
		showRounds({ peer: 'p', roster: [] }, []);
		console.log(elements.apart.hidden);
		const { Past, showPast } = await import('./happened.js');
		const past = new Past({});
		const event = (step, generation, why) => past.add({ kind: 'outer', generation, step, message: 'to ' + step, outer: { replicas: [{ steps: why ? 0 : 4, why }] } });
		event(4, 1); event(8, 1, 'it was silent'); event(12, 2); event(16, 2);
		showPast(past);
		console.log(elements.happened.text);`)
	for _, want := range []string{
		"false Round: steps 9 to 12: replica 0 (desk) waits for replica 1 (spot), at 2 of 4 inner steps.Newest outer step: steps 5 to 8 of 2 of 3 replicas.",
		"drift0.0823 0: all learned the same", "stood still2.0% of the round", "exchange4.10 s messages came for 1.50 s during inner steps", "between replicas0.412 bytes a token; every step: 25.1", "sent from here31 MB in the round",
		"drift by step, from 0",
		"replica 0deskthis nodewaitshas ended its partround4 of 4time15% stillnowstep 12, loss 3.5000, 1,200 tokens/slearnednorm 0.5, cosine 0.75 with the others",
		"replica 1spotfar from the othersmakes <b>inner</b> stepsround2 of 4time10% stillnowstep 10, loss 3.2500learnednorm 4, cosine -0.10 with the otherswhat it learned is 8.0 times as large as what most did",
		"replica 2rsilentnot heard of for 1 minround0 of 4nowno step yetdid not count in the newest outer step: it was silent",
		"No outer step yet.", "\nfalse\ntrue\njust nowouter stepto 16just nowouter stepto 8\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the page does not say %q:\n%s", want, out)
		}
	}
}

// TestCurvesAreSmoothed by an average that knows how many steps a point stands for, and starts at the first one. Axes have round numbers.
func TestCurvesAreSmoothed(t *testing.T) {
	out := scripted(t, `
		const { Curves, smoothed } = await import('./curve.js');
		const { roomy, ticks } = await import('./scale.js');
		const p = (step, mean, count = 1) => ({ step, mean, count });
		const show = (points) => points.map((p) => p.mean.toFixed(4)).join(' ');
		console.log('each', show(smoothed([p(1, 4), p(2, 2), p(3, 2)], 0.5)));
		console.log('thinned', show(smoothed([p(1, 4), p(3, 2, 2)], 0.5)));
		console.log('none', show(smoothed([p(1, 4), p(2, 2)], 0)));
		const curves = new Curves({ train: {}, held_out: {} });
		curves.add({ step: 1, loss: 3, held_out: null, learning_rate: 0.001, tokens_per_s: 10 });
		curves.add({ step: 2, loss: 3, held_out: 4, gradient_norm: 0, tokens_per_s: 0 });
		console.log('known', curves.train.length, curves.heldOut.length, curves.learningRate.length, curves.gradientNorm.length, curves.tokensPerS.length);
		curves.add({ step: 1, loss: null, held_out: null, tokens_per_s: 5 });
		console.log('again', curves.train.length, curves.heldOut.length, curves.learningRate.length, curves.tokensPerS.length);
		const values = (axis) => ticks(axis, 5).map(([, text]) => text).join(' ');
		console.log('linear', values(roomy([p(1, 1.5), p(2, 5.5)], 100, 0, false, 0.005)));
		const log = roomy([p(1, 0.01), p(2, 10)], 100, 0, true, 0.005);
		console.log('log', values(log), Math.round(log.place(Math.sqrt(0.1))), log.value(log.place(2)).toFixed(4));
		console.log('no log of 0', roomy([p(1, 0), p(2, 10)], 100, 0, true, 0.005).log);`)
	want := `each 4.0000 2.6667 2.2857
thinned 4.0000 2.2857
none 4.0000 2.0000
known 2 1 1 1 1
again 0 0 0 1
linear 2 3 4 5
log 0.01 0.02 0.05 0.1 0.2 0.5 1 2 5 10 50 2.0000
no log of 0 false
`
	if out != want {
		t.Errorf("the curves are\n%swant\n%s", out, want)
	}
}

// TestTextsOfTheModel have a list of their own, the newest first, as texts and never as markup; without any it is not there.
func TestTextsOfTheModel(t *testing.T) {
	out := scripted(t, `
		const { Past, showPast } = await import('./happened.js');
		const sample = (step, message) => ({ kind: 'sample', step, message });
		const past = new Past({ happened: [{ time: new Date().toISOString(), event: { kind: 'plan', message: 'generation 1' } }] });
		showPast(past);
		console.log(elements.writes.hidden);
		past.add(sample(1, 'oldest'));
		for (let step = 2; step <= 33; step++) {
			past.add(sample(step, '<b>Once</b>'));
		}
		showPast(past);
		console.log(elements.writes.hidden, elements.written.children.length, elements.written.children[0].text, elements.written.children.at(-1).text);
		console.log(elements.happened.text, new Past({ happened: [{ time: new Date().toISOString(), event: sample(7, 'again') }] }).written.length);`)
	if want := "true\nfalse 32 just nowstep 33<b>Once</b> just nowstep 2<b>Once</b>\njust nowplangeneration 1 1\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}
