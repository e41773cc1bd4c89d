package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/node/qrcode"
)

// openAdmission is open with what the page that `pnode watch` opens can do: send sends a request with a key and a body.
func openAdmission(t *testing.T, node Node) (o opened, key string, send func(method, path, key, body string) (int, string)) {
	t.Helper()
	dir, _ := serve(t, node, nil)
	c := dial(t, dir)
	page, err := url.Parse(c.Page())
	if err != nil {
		t.Fatal(err)
	}
	key, ok := strings.CutPrefix(c.AdmissionPage(), c.Page()+".")
	if !ok {
		t.Fatalf("the page that lets in is %q", c.AdmissionPage())
	}
	o = opened{t, page}
	return o, key, func(method, path, key, body string) (int, string) {
		t.Helper()
		resp, text := o.ask(method, path, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+key)
			r.Body = io.NopCloser(strings.NewReader(body))
		})
		return resp.StatusCode, text
	}
}

// TestThePagesOtherKeyLetsMachinesIn with the same checks as the commands, and does nothing else; the key to look with does none of it.
func TestThePagesOtherKeyLetsMachinesIn(t *testing.T) {
	node := &fakeNode{newcomers: []Newcomer{{Name: "laptop", Address: "192.0.2.7", Code: "482913"}}}
	o, key, send := openAdmission(t, node)
	code, body := send("GET", "/v1/admission", key, "")
	var a Admission
	if err := json.Unmarshal([]byte(body), &a); err != nil || code != http.StatusOK || a.Refused != "" || !a.LAN || len(a.Newcomers) != 1 || a.Newcomers[0].Name != "laptop" || strings.Contains(body, "482913") {
		t.Errorf("%d %q %v", code, body, err)
	}
	if code, body := send("POST", "/v1/admission/admit", key, `{"code":"482 913"}`); code != http.StatusOK || !strings.Contains(body, "laptop may join") {
		t.Errorf("admit: %d %q", code, body)
	}
	for _, which := range []string{`"code":"482 913",`, "", `"until":"2026-11-30T15:04:05.000000006Z",`} { // all that ask, and those that asked by then
		if code, body := send("POST", "/v1/admission/admit", key, "{"+which+`"refuse":true}`); code != http.StatusOK || !strings.Contains(body, "laptop is not let in, and was told so") {
			t.Errorf("refuse %s: %d %q", which, code, body)
		}
	}
	code, body = send("POST", "/v1/admission/invite", key, `{"ttl_s":3600,"uses":2}`)
	var made PageInvite
	if err := json.Unmarshal([]byte(body), &made); err != nil || code != http.StatusOK || made.Invite != "pnode1-x" || made.Uses != 2 {
		t.Errorf("invite: %d %q %v", code, body, err)
	}
	modules, err := qrcode.Modules("pnode1-x")
	if err != nil || len(made.Code) != len(modules) {
		t.Fatalf("%d rows, want %d: %v", len(made.Code), len(modules), err)
	}
	for y, row := range modules {
		for x, dark := range row {
			if (made.Code[y][x] == '1') != dark {
				t.Fatalf("module %d of row %d is wrong", x, y)
			}
		}
	}
	if want := []string{"admit 482 913", "refuse 482 913", "refuse ", "refuse  until 2026-11-30T15:04:05.000000006Z", "invite 1h0m0s 2 false"}; !slices.Equal(node.told, want) {
		t.Errorf("the node was told %q, want %q", node.told, want)
	}
	for body, want := range map[string]int{
		`{"ttl_s":3600,"uses":1,"owner":true}`: http.StatusForbidden, `{"ttl_s":0,"uses":1}`: http.StatusBadRequest, `{"ttl_s":1,"uses":1025}`: http.StatusBadRequest, `{`: http.StatusBadRequest, "": http.StatusBadRequest,
	} {
		if code, _ := send("POST", "/v1/admission/invite", key, body); code != want {
			t.Errorf("invite %s: %d, want %d", body, code, want)
		}
	}
	for _, request := range []string{
		"GET /v1/status", "GET /v1/invites", "GET /v1/newcomers", "GET /v1/admissions", "POST /v1/invite", "POST /v1/admit", "POST /v1/revoke", "POST /v1/leave", "POST /v1/stop", "POST /v1/chunk",
	} {
		method, path, _ := strings.Cut(request, " ")
		if code, _ := send(method, path, key, `{"ttl_s":1,"uses":1}`); code != http.StatusForbidden {
			t.Errorf("%s with the key that lets in: %d", request, code)
		}
	}
	for _, request := range []string{"GET /v1/admission", "POST /v1/admission/admit", "POST /v1/admission/invite"} {
		method, path, _ := strings.Cut(request, " ")
		if code, _ := send(method, path, o.page.Fragment, `{"code":"482913"}`); code != http.StatusForbidden {
			t.Errorf("%s with the key to look: %d", request, code)
		}
		for _, wrong := range []string{"", key + "x", o.page.Fragment + "." + key} {
			if code, body := send(method, path, wrong, ""); code != http.StatusUnauthorized || body != "" {
				t.Errorf("%s with %q: %d %q", request, wrong, code, body)
			}
		}
	}
	if len(node.told) != 5 {
		t.Errorf("the node was told %q", node.told[5:])
	}
}

// TestWhoMayNotLetMachinesIn says so on the page, and is refused.
func TestWhoMayNotLetMachinesIn(t *testing.T) {
	node := &fakeNode{refuse: errors.New("only desk can make invites"), noLAN: errors.New("without --lan")}
	_, key, send := openAdmission(t, node)
	if code, body := send("GET", "/v1/admission", key, ""); code != http.StatusOK || body != `{"refused":"only desk can make invites","lan":false,"newcomers":[]}`+"\n" {
		t.Errorf("%d %q", code, body)
	}
	if code, body := send("POST", "/v1/admission/invite", key, `{"ttl_s":1,"uses":1}`); code != http.StatusInternalServerError || !strings.Contains(body, "only desk can") {
		t.Errorf("%d %q", code, body)
	}
}

// TestTheKeyThatLetsInIsNew with each start, as the page's own key is not.
func TestTheKeyThatLetsInIsNew(t *testing.T) {
	dir := t.TempDir()
	keys := map[string]bool{}
	for range 2 {
		s, err := Listen(Options{Dir: dir, Node: &fakeNode{}})
		if err != nil {
			t.Fatal(err)
		}
		keys[s.address.Admission] = len(s.address.Admission) == len(newToken())
		if err := s.listener.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for key, whole := range keys {
		if len(keys) != 2 || !whole {
			t.Errorf("key %q of %d", key, len(keys))
		}
	}
}

// TestWhomARefusalNames: who shows a code, else who began to ask by a time, else all.
func TestWhomARefusalNames(t *testing.T) {
	shown := time.Date(2026, 11, 30, 15, 4, 5, 6, time.UTC)
	first, second := Newcomer{Code: "111222", Since: shown}, Newcomer{Code: "333444", Since: shown.Add(1)}
	for r, want := range map[Refusal][2]bool{
		{}:                             {true, true},
		{Until: shown}:                 {true, false},
		{Until: shown.Add(1)}:          {true, true},
		{Until: shown.Add(-1)}:         {false, false},
		{Code: "333444"}:               {false, true},
		{Code: "333444", Until: shown}: {false, true},
		{Code: "1"}:                    {false, false},
	} {
		if got := [2]bool{r.Names(first), r.Names(second)}; got != want {
			t.Errorf("%+v: %v, want %v", r, got, want)
		}
	}
}
