package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/qrcode"
)

// TestThePageInABrowser opens the page of a real run of two nodes, sees every view in light and dark on small and large screens, and the
// loss of a node. The page asks its node alone, tells the console of no problem, fits the screen, and axe finds nothing that keeps
// people out, where PNODE_AXE names axe-core's axe.min.js.
func TestThePageInABrowser(t *testing.T) {
	t.Parallel()
	page := openChromium(t)
	file, device, dir := runFile(t, 1_000_000), deviceFile(t, "2GFLOP/s"), t.TempDir()
	desk := start(t, "train", "--config", file, "--dir", dir, "--json", "--name", "desk", "--min-nodes", "2", "--voters", "owners",
		"--threads", "1", "--listen", "127.0.0.1:0", "--emulate", device)
	invite := desk.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
	lap := start(t, "join", "--dir", t.TempDir(), "--name", "lap", "--threads", "1", "--emulate", device, invite)
	desk.until(6) // with a held-out loss
	watch := start(t, "watch", "--print", "--dir", dir)
	watch.finish(0)
	url := strings.TrimSpace(watch.stdout.String())

	page.shows(1280, "light")
	page.call("Page.navigate", map[string]any{"url": url}, nil)
	page.await(`document.querySelector('#curve svg path.heldout')?.getAttribute('d') !== undefined && document.querySelector('#picture')?.shadowRoot?.querySelector('svg') && document.querySelectorAll('#lines tbody tr').length === 2`)
	axe := axeCore(t)
	if axe != "" {
		page.evaluate(axe, nil)
	}
	zoomTheChart(t, page)
	page.evaluate(`document.querySelector('#why').open = true`, nil)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{390, 1280} {
			page.shows(width, scheme)
			checkView(t, page, axe != "", fmt.Sprintf("%d pixels, %s", width, scheme))
		}
	}

	inviteByPage(t, page, dir)

	lap.kill()
	page.await(`document.querySelector('#members tr.gone')?.textContent.includes('gone since')`)
	page.await(`document.querySelector('#happened').textContent.includes('lap is gone')`)
	for width, scheme := range map[int]string{1280: "light", 390: "dark"} {
		page.shows(width, scheme)
		checkView(t, page, axe != "", fmt.Sprintf("without lap: %d pixels, %s", width, scheme))
	}
	if len(page.problems) > 0 {
		t.Errorf("the console was told of %s", strings.Join(page.problems, "\n"))
	}
	origin := url[:strings.Index(url[len("http://"):], "/")+len("http://")]
	for _, asked := range page.requests {
		if !strings.HasPrefix(asked, origin+"/") {
			t.Errorf("the page of %s asked for %s", origin, asked)
		}
	}
	if len(page.requests) < 10 {
		t.Errorf("only %d requests were seen", len(page.requests))
	}
	seeShared(t, page, dir, axe)

	desk.kill()
	page.await(`document.body.classList.contains('gone')`)
	for width, scheme := range map[int]string{1280: "light", 390: "dark"} {
		page.shows(width, scheme)
		checkView(t, page, axe != "", fmt.Sprintf("without its node: %d pixels, %s", width, scheme))
	}
}

// inviteByPage has the page that `pnode watch` opens make an invite of the run.
func inviteByPage(t *testing.T, page *chromium, dir string) {
	t.Helper()
	client, err := api.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var hidden bool
	page.evaluate(`document.querySelector('#admission').hidden`, &hidden)
	if !hidden {
		t.Error("the URL that is printed lets machines in")
	}
	page.call("Page.navigate", map[string]any{"url": client.AdmissionPage()}, nil)
	page.await(`!document.querySelector('#inviting').hidden`)
	page.types("uses", "3")
	page.press("Enter", false)
	page.await(`!document.querySelector('#made').hidden`)
	var made string
	page.evaluate(`document.querySelector('#invite').value`, &made)
	invites, err := client.Invites(t.Context())
	if err != nil || !strings.HasPrefix(made, "pnode1-") || !slices.ContainsFunc(invites, func(i api.Invite) bool { return i.Uses == 3 && i.Role == "member" && i.State == "open" }) {
		t.Errorf("made %q, invites %+v, %v", made, invites, err)
	}
	page.evaluate(`document.querySelector('#hide').click()`, nil)
}

// lettingNode is a node that lets machines in, or does not.
type lettingNode struct {
	stillNode
	mu      sync.Mutex // guards what follows
	refused error
	waiting []api.Newcomer
}

func (n *lettingNode) Status() api.Status {
	s, celsius, watts := n.stillNode.Status(), 61.4, 45.2
	s.Sensors = []api.Sensor{{Device: "cuda:0", Celsius: &celsius, Watts: &watts}, {Device: "cpu", Watts: &watts}}
	return s
}

func (*lettingNode) Profiles() (api.Profiles, error) {
	return api.Profiles{Devices: []api.DeviceProfile{}, Links: []api.LinkProfile{}}, nil
}

func (n *lettingNode) MayInvite() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refused
}

func (n *lettingNode) Newcomers() ([]api.Newcomer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.waiting, nil
}

func (n *lettingNode) Admit(_ context.Context, code string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) == 0 || n.waiting[0].Code != code {
		return "", errors.New("no newcomer shows that code")
	}
	n.waiting = n.waiting[1:]
	return "<b>laptop</b> may join", nil
}

func (n *lettingNode) Refuse(r api.Refusal) (refused []api.Newcomer, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.Code = strings.ReplaceAll(r.Code, " ", "")
	n.waiting = slices.DeleteFunc(slices.Clone(n.waiting), func(w api.Newcomer) bool {
		if r.Names(w) {
			refused = append(refused, w)
		}
		return r.Names(w)
	})
	if len(refused) == 0 {
		return nil, errors.New("nobody asks")
	}
	return refused, nil
}

// TestNewcomersAreRefused those with a code, be there two, then all that are left.
func TestNewcomersAreRefused(t *testing.T) {
	node := &lettingNode{waiting: []api.Newcomer{{Name: "laptop", Code: "482913"}, {Name: "attic", Code: "111222"}, {Name: "cellar", Code: "333444"}, {Name: "roof", Code: "111222"}}}
	dir := t.TempDir()
	serveNode(t, dir, node)
	const said = " is not let in, and was told so; it may ask again\n"
	for _, c := range []struct {
		code, out, stderr string
		exit, left        int
	}{
		{"999999", "", "pnode: the node refused: nobody asks\n", exitUnreachable, 4},
		{"111 222", "attic" + said + "roof" + said, "", exitOK, 2},
		{"", "laptop" + said + "cellar" + said, "", exitOK, 0},
		{"", "", "pnode: the node refused: nobody asks\n", exitUnreachable, 0},
	} {
		args := []string{"admit", "--dir", dir, "--refuse"}
		if c.code != "" {
			args = append(args, c.code)
		}
		if exit, out, stderr := pnode(t, args...); exit != c.exit || out != c.out || stderr != c.stderr || len(node.waiting) != c.left {
			t.Errorf("%q: exit code %d, %q, %q, %d wait", c.code, exit, out, stderr, len(node.waiting))
		}
	}
}

// TestLettingMachinesInByThePage goes by keys alone: a machine that asks, with another code and with its own, and an invite whose code a camera
// can read. Without the key, and where the node may not, there is nothing of it.
func TestLettingMachinesInByThePage(t *testing.T) {
	t.Parallel()
	page := openChromium(t)
	node := &lettingNode{waiting: []api.Newcomer{{Name: "<b>laptop</b>", Address: "192.0.2.7", Code: "482913"}}}
	dir := t.TempDir()
	serveNode(t, dir, node)
	client, err := api.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	page.shows(1280, "light")
	page.call("Page.navigate", map[string]any{"url": client.AdmissionPage()}, nil)
	page.await(`document.querySelector('#asking')?.textContent.startsWith('<b>laptop</b> (192.0.2.7) asks to join')`)
	var shown bool
	page.evaluate(`document.body.textContent.includes('482913') || location.href.includes('#')`, &shown)
	if shown {
		t.Error("the page shows the code, or its URL a key")
	}
	page.await(`document.querySelector('#run').textContent.includes('cuda:0 of this node61 °C 45 W') && document.querySelector('#run').textContent.includes('cpu of this node45 W')`)
	page.types("digits", "000000")
	page.press("Enter", false)
	page.await(`document.querySelector('#admitted').textContent === 'Not done: no newcomer shows that code.'`)
	page.types("digits", "482913")
	page.press("Enter", false)
	page.await(`document.querySelector('#admitted').textContent === '<b>laptop</b> may join.' && document.querySelector('#admit').hidden`)

	page.types("uses", "2")
	page.press("Enter", false)
	page.await(`document.querySelector('#invite').value === 'pnode1-24h0m0s-2'`)
	want, err := qrcode.Modules("pnode1-24h0m0s-2")
	if err != nil {
		t.Fatal(err)
	}
	var drawn [][]bool
	page.evaluate(fmt.Sprintf(`[...Array(%[1]d).keys()].map((y) => [...Array(%[1]d).keys()].map((x) => document.querySelector('#code path').isPointInFill(new DOMPoint(x + 0.5, y + 0.5))))`, len(want)), &drawn)
	if !reflect.DeepEqual(drawn, want) {
		t.Errorf("the code is %v, want %v", drawn, want)
	}
	axe := axeCore(t)
	if axe != "" {
		page.evaluate(axe, nil)
	}
	node.mu.Lock()
	node.waiting = []api.Newcomer{{Name: strings.Repeat("long-name-", 6), Address: "fd00:1111:2222:3333:4444:5555:6666:7777", Code: "1", Since: time.Now()}}
	node.mu.Unlock()
	page.await(`!document.querySelector('#admit').hidden`)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{390, 1280} {
			page.shows(width, scheme)
			checkView(t, page, axe != "", fmt.Sprintf("letting in: %d pixels, %s", width, scheme))
		}
	}
	page.await(`document.querySelector('#refuse').textContent === 'Refuse'`)
	page.evaluate(`document.querySelector('#refuse').focus()`, nil)
	page.press("Enter", false)
	page.await(`document.querySelector('#admitted').textContent.includes('long-name- is not let in, and was told so') && document.querySelector('#admit').hidden`)
	page.evaluate(`document.querySelector('#hide').focus()`, nil)
	page.press("Enter", false)
	page.await(`document.querySelector('#made').hidden && document.querySelector('#invite').value === '' && document.querySelector('#code').childElementCount === 0`)

	node.mu.Lock()
	node.refused = errors.New("only desk can make invites")
	node.mu.Unlock()
	page.await(`document.querySelector('#admits').textContent === 'only desk can make invites.' && document.querySelector('#inviting').hidden && document.querySelector('#admit').hidden`)
	page.call("Page.navigate", map[string]any{"url": client.Page()}, nil) // the key to look with
	page.await(`document.querySelector('#admission').hidden`)
	if len(page.problems) != 1 { // the refusal of the other code, which browsers write down
		t.Errorf("the console was told of %s", strings.Join(page.problems, "\n"))
	}
}

// seeShared shares the node's page, and wants the same views behind the link and its certificate, which asks the link's origin alone.
func seeShared(t *testing.T, page *chromium, dir, axe string) {
	t.Helper()
	link := shareLink(t, dir)
	page.call("Security.setIgnoreCertificateErrors", map[string]any{"ignore": true}, nil) // people compare its fingerprint
	page.call("Page.navigate", map[string]any{"url": "about:blank"}, nil)
	page.await(`location.href === 'about:blank'`) // the page before asks for nothing any more
	page.requests = nil
	page.call("Page.navigate", map[string]any{"url": link}, nil)
	page.await(`document.querySelector('#curve svg path.heldout')?.getAttribute('d') !== undefined && document.querySelector('#members tr.gone') && document.querySelector('#happened').textContent.includes('lap is gone')`)
	if axe != "" {
		page.evaluate(axe, nil)
	}
	for width, scheme := range map[int]string{390: "light", 1280: "dark"} {
		page.shows(width, scheme)
		checkView(t, page, axe != "", fmt.Sprintf("shared: %d pixels, %s", width, scheme))
	}
	var codes []int
	page.evaluate(`Promise.all([['POST', 'invite'], ['POST', 'stop'], ['GET', 'invites'], ['GET', 'newcomers']].map(async ([method, path]) =>
		(await fetch('/v1/' + path, { method, headers: { Authorization: 'Bearer ' + sessionStorage.getItem('pnode-key') } })).status))`, &codes)
	if want := []int{403, 403, 404, 404}; !slices.Equal(codes, want) {
		t.Errorf("the shared page's requests to change or list something get %d, want %d", codes, want)
	}
	origin := link[:strings.Index(link[len("https://"):], "/")+len("https://")]
	for _, asked := range page.requests {
		if !strings.HasPrefix(asked, origin+"/") {
			t.Errorf("the page of %s asked for %s", origin, asked)
		}
	}
}

// shareLink shares a node's page on loopback until the test ends, and returns the link.
func shareLink(t *testing.T, dir string) string {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "watch", "--share", "--listen", "127.0.0.1", "--dir", dir)
	cmd.Env = slices.Clone(outerEnv)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	link, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(link, "https://127.0.0.1:") {
		t.Fatalf("link %q, %v", link, err)
	}
	return strings.TrimSpace(link)
}

// zoomTheChart draws the curves in each way, selects steps by pointer and by keys, and shows all again.
func zoomTheChart(t *testing.T, page *chromium) {
	t.Helper()
	page.evaluate(`document.querySelector('#log').click()`, nil)
	choose := func(id, value string) {
		page.evaluate(fmt.Sprintf(`document.querySelector('#%[1]s').value = '%[2]s', document.querySelector('#%[1]s').dispatchEvent(new Event('change'))`, id, value), nil)
	}
	choose("smoothing", "0.9")
	page.await(`document.querySelector('#curve path.raw') && document.querySelector('#reading').textContent.includes('smoothed')`)
	for value, text := range map[string]string{"learningRate": "learning rate 0.", "gradientNorm": "gradient norm", "tokensPerS": "tokens/s"} {
		choose("beside", value)
		page.await(fmt.Sprintf(`document.querySelector('#reading').textContent.includes('%s') && document.querySelector('#curve text.beside')`, text))
	}
	var box struct{ X, Y, Width, Height float64 }
	page.evaluate(`document.querySelector('#curve').scrollIntoView({ block: 'center' }), document.querySelector('#curve svg').getBoundingClientRect().toJSON()`, &box)
	page.drag(box.X+box.Width/4, box.X+box.Width*3/4, box.Y+box.Height/2)
	page.await(`!document.querySelector('#whole').hidden`)
	page.evaluate(`document.querySelector('#curve').focus()`, nil)
	page.press("Escape", false)
	page.await(`document.querySelector('#whole').hidden`)
	page.press("ArrowLeft", false)
	page.press("+", false)
	page.await(`!document.querySelector('#whole').hidden`)
	page.press("ArrowRight", true)
	page.press("Escape", false)
	page.await(`document.querySelector('#whole').hidden`)
}

// checkView wants a page that fits its screen, and in which axe finds nothing.
func checkView(t *testing.T, page *chromium, axe bool, what string) {
	t.Helper()
	var over int
	page.evaluate(`document.documentElement.scrollWidth - innerWidth`, &over)
	if over > 0 {
		t.Errorf("%s: the page is %d pixels too wide", what, over)
	}
	if !axe {
		return
	}
	var found []string
	page.evaluate(`axe.run().then(({ violations }) => violations.map((v) => v.id + ' ' + v.nodes.map((n) => n.html.slice(0, 200) + ': ' + n.failureSummary).join('; ')))`, &found)
	if len(found) > 0 {
		t.Errorf("%s: axe finds\n%s", what, strings.Join(found, "\n"))
	}
}

// axeCore returns the script of axe-core, empty where there is none.
func axeCore(t *testing.T) string {
	t.Helper()
	file := os.Getenv("PNODE_AXE")
	if file == "" {
		t.Log("PNODE_AXE names no axe.min.js of axe-core: accessibility is not looked at")
		return ""
	}
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}
