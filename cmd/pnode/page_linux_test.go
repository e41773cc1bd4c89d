package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
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
}

// seeShared shares the node's page, and wants the same views behind the link and its certificate, which asks the link's origin alone.
func seeShared(t *testing.T, page *chromium, dir, axe string) {
	t.Helper()
	link := shareLink(t, dir)
	page.call("Security.setIgnoreCertificateErrors", map[string]any{"ignore": true}, nil) // people compare its fingerprint
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
