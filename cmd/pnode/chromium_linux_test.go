package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// chromium is a page in a headless browser, driven over the DevTools protocol: JSON objects with a NUL after each, on two pipes.
type chromium struct {
	t       *testing.T
	in      *os.File
	out     *os.File
	reader  *bufio.Reader
	id      int
	session string
	// problems are what the console was told of; requests the URLs that the page asked for.
	problems, requests []string
}

// message is an answer, or an event, which has a method.
type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// openChromium starts a browser with an empty page. The test is skipped where there is none, and ends it.
func openChromium(t *testing.T) *chromium {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser beside real processes takes a minute")
	}
	program, err := exec.LookPath("chromium")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("needs chromium, of Debian's package of that name")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) }) // in which a process of the browser may write to the last
	// Containers have no user namespaces and little shared memory; the page is this test's own.
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
		"--user-data-dir="+home, "about:blank")
	cmd.Env = append(slices.Clone(outerEnv), "HOME="+home)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // its files 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &chromium{t: t, in: in, out: out, reader: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = errors.Join(in.Close(), out.Close()) // at which it ends
		deadline := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer deadline.Stop()
		_ = cmd.Wait() // how it ends is all the same
	})
	if err := errors.Join(theirIn.Close(), theirOut.Close()); err != nil {
		t.Fatal(err)
	}
	var target struct {
		TargetID string `json:"targetId"`
	}
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	c.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		c.call(domain+".enable", nil, nil)
	}
	return c
}

// call asks for something and reads the answer into result, unless that is nil. Events on the way are noted.
func (c *chromium) call(method string, params, result any) {
	c.t.Helper()
	c.id++
	text, err := json.Marshal(struct {
		ID      int    `json:"id"`
		Session string `json:"sessionId,omitempty"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{c.id, c.session, method, params})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.out.SetReadDeadline(time.Now().Add(endToEndTimeout)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(text, 0)); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	for {
		line, err := c.reader.ReadBytes(0)
		if err != nil {
			c.t.Fatalf("%s: no answer: %v\nproblems of the page: %q", method, err, c.problems)
		}
		var m message
		if err := json.Unmarshal(line[:len(line)-1], &m); err != nil {
			c.t.Fatal(err)
		}
		switch {
		case m.Method != "":
			c.note(m)
		case m.ID != c.id:
		case m.Error != nil:
			c.t.Fatalf("%s: %s", method, m.Error.Message)
		case result == nil:
			return
		default:
			if err := json.Unmarshal(m.Result, result); err != nil {
				c.t.Fatal(err)
			}
			return
		}
	}
}

// note keeps what an event says of requests and problems.
func (c *chromium) note(m message) {
	var event struct {
		Type    string `json:"type"` // of a call to the console
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
		Entry struct {
			Level string `json:"level"`
		} `json:"entry"`
	}
	if err := json.Unmarshal(m.Params, &event); err != nil {
		c.t.Fatal(err)
	}
	switch m.Method {
	case "Network.requestWillBeSent":
		c.requests = append(c.requests, event.Request.URL)
	case "Runtime.exceptionThrown":
		c.problems = append(c.problems, string(m.Params))
	case "Runtime.consoleAPICalled":
		if event.Type == "error" || event.Type == "warning" || event.Type == "assert" {
			c.problems = append(c.problems, string(m.Params))
		}
	case "Log.entryAdded":
		if event.Entry.Level == "error" || event.Entry.Level == "warning" {
			c.problems = append(c.problems, string(m.Params))
		}
	}
}

// evaluate carries out script in the page and reads its value, which may be promised, into result, unless that is nil.
func (c *chromium) evaluate(script string, result any) {
	c.t.Helper()
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	c.call("Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}, &answer)
	if answer.ExceptionDetails != nil {
		c.t.Fatalf("%.300s: %s", script, answer.ExceptionDetails)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(answer.Result.Value, result); err != nil {
		c.t.Fatalf("%.300s: %v", script, err)
	}
}

// await returns once a condition holds, which is looked at when the page changes.
func (c *chromium) await(condition string) {
	c.t.Helper()
	c.evaluate(fmt.Sprintf(`new Promise((done) => {
		const look = () => {
			if (%s) {
				observer.disconnect();
				done(true);
			}
		};
		const observer = new MutationObserver(look);
		observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
		look();
	})`, condition), nil)
}

// shows has the page drawn on a screen of so many pixels, in light or dark.
func (c *chromium) shows(width int, scheme string) {
	c.t.Helper()
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	c.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// press presses a key, with Shift or without.
func (c *chromium) press(key string, shift bool) {
	c.t.Helper()
	modifiers := 0
	if shift {
		modifiers = 8
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "modifiers": modifiers}
		if key == "Enter" && kind == "keyDown" {
			params["text"] = "\r" // without which a form is not sent
		}
		c.call("Input.dispatchKeyEvent", params, nil)
	}
}

// types puts text into an input in place of what it has.
func (c *chromium) types(id, text string) {
	c.t.Helper()
	c.evaluate(fmt.Sprintf(`document.querySelector('#%[1]s').focus(), document.querySelector('#%[1]s').select()`, id), nil)
	c.call("Input.insertText", map[string]any{"text": text}, nil)
}

// drag moves the pointer from one place to another with its button down.
func (c *chromium) drag(fromX, toX, y float64) {
	c.t.Helper()
	for _, e := range []struct {
		kind string
		x    float64
	}{{"mousePressed", fromX}, {"mouseMoved", (fromX + toX) / 2}, {"mouseMoved", toX}, {"mouseReleased", toX}} {
		c.call("Input.dispatchMouseEvent", map[string]any{"type": e.kind, "x": e.x, "y": y, "button": "left", "buttons": 1, "clickCount": 1}, nil)
	}
}
