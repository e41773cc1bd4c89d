package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pnode/planner/plan"
)

// fakeNode answers from fields and notes what it is told.
type fakeNode struct {
	Hub
	status Status
	refuse error

	newcomers   []Newcomer
	noLAN       error
	checkpoints CheckpointList
	profiles    Profiles

	mu   sync.Mutex // guards told
	told []string
}

func (n *fakeNode) Status() Status { return n.status }

func (n *fakeNode) note(what string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, what)
	return n.refuse
}

func (n *fakeNode) Invite(_ context.Context, r InviteRequest) (string, error) {
	return "pnode1-x", n.note(fmt.Sprintf("invite %v %d %v", r.TTL, r.Uses, r.Owner))
}

func (n *fakeNode) Invites() ([]Invite, error) {
	return []Invite{{Serial: "07", Role: "owner", Uses: 2, Left: 1, State: "open", Peers: []string{"ada"}}}, n.note("invites")
}

func (n *fakeNode) Revoke(_ context.Context, r RevokeRequest) (string, error) {
	return "done", n.note(fmt.Sprintf("revoke %s %v %s", r.Target, r.Members, r.Reason))
}

func (n *fakeNode) Checkpoints() (CheckpointList, error) {
	return n.checkpoints, n.note("checkpoints")
}

func (n *fakeNode) Profiles() (Profiles, error) { return n.profiles, n.note("profiles") }

func (n *fakeNode) Schedule(w io.Writer) error {
	if err := n.note("schedule"); err != nil {
		return err
	}
	_, err := io.WriteString(w, "<svg/>")
	return err
}

func (n *fakeNode) KeepWhole() (Keeping, error) {
	return Keeping{Newest: 50, Copy: plan.WholeCopy{Next: 50, DoneBytes: 3, SizeBytes: 4}}, n.note("keep")
}

func (n *fakeNode) Model() (Model, error) {
	return Model{Step: 7, Generation: 2, Layers: []plan.LayerInit{{SizeBytes: 3, Chunks: []plan.Hash{{1}}}}}, n.note("model")
}

func (n *fakeNode) Chunk(_ context.Context, step plan.Step, h plan.Hash) ([]byte, error) {
	return []byte("abc"), n.note(fmt.Sprintf("chunk %d %d", step, h[0]))
}

func (n *fakeNode) Leave(context.Context) error { return n.note("leave") }
func (n *fakeNode) Stop(context.Context) error  { return n.note("stop") }

func (n *fakeNode) Recover(context.Context) (Recovery, error) {
	return Recovery{By: "rack", Without: []string{"desk"}, Incarnation: 2, Step: 50}, n.note("recover")
}

// serve runs a server until the test or stop ends it.
func serve(t *testing.T, node Node, change func(*Server)) (dir string, stop func()) {
	t.Helper()
	dir = t.TempDir()
	s, err := Listen(Options{Dir: dir, Node: node, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "pnode_step 0\n")
	})})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	t.Cleanup(stop)
	return dir, stop
}

func dial(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNothingWithoutTheToken(t *testing.T) {
	node := &fakeNode{status: Status{Run: "secret"}}
	dir, _ := serve(t, node, nil)
	a, err := readAddress(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{"", "Bearer ", "Bearer wrong", "Basic " + a.Token, a.Token, "Bearer " + a.Token + "x", "bearer" + a.Token} {
		for _, request := range []string{"GET /v1/status", "GET /v1/events", "GET /v1/metrics", "GET /metrics", "GET /v1/history", "GET /v1/schedule.svg", "GET /index.html", "GET /page.css", "POST /v1/invite", "POST /v1/leave", "POST /v1/stop", "GET /", "GET /v1/none"} {
			method, path, _ := strings.Cut(request, " ")
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Addr+path, strings.NewReader(`{"ttl_s":1,"uses":1}`))
			if err != nil {
				t.Fatal(err)
			}
			if header != "" {
				req.Header.Set("Authorization", header)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized || len(body) != 0 || err != nil {
				t.Errorf("%s with %q: %s %q %v", request, header, resp.Status, body, err)
			}
		}
	}
	if len(node.told) != 0 {
		t.Errorf("the node was told %v", node.told)
	}
}

func TestClientSpeaksWithTheNode(t *testing.T) {
	loss := 0.30000000000000004
	node := &fakeNode{status: Status{
		Run: "r", Peer: "p", State: "training", Generation: 2, Step: 7, Steps: 9, Loss: &loss,
		Roster:     []Member{{Peer: "p", Self: true}},
		Plan:       []StageStatus{{Stage: 1, Layers: plan.LayerRange{First: 2, End: 4}, ForwardMS: 1.5}},
		Checkpoint: Checkpoint{Step: 5, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
	}}
	node.checkpoints = CheckpointList{Damaged: "step 2", Checkpoints: []StoredCheckpoint{{
		Step: 5, Generation: 2, Layers: 6, SizeBytes: 7, Time: node.status.Checkpoint.Time, Holders: []plan.PeerID{"p", "q"}, HolderNames: []string{"desk", "laptop"}, Copies: 1,
	}}}
	dir, _ := serve(t, node, nil)
	c := dial(t, dir)
	if list, err := c.Checkpoints(t.Context()); err != nil || !reflect.DeepEqual(list, node.checkpoints) {
		t.Errorf("checkpoints: %v\n got %+v\nwant %+v", err, list, node.checkpoints)
	}
	for i := range 70 {
		d := DeviceProfile{Node: fmt.Sprint("node-", i), CountedPermille: 500, MeasuredMS: float64(i), Layers: []plan.LayerRange{{End: 1}}}
		node.profiles.Devices = append(node.profiles.Devices, d)
		node.profiles.Links = append(node.profiles.Links, LinkProfile{FromNode: d.Node, Used: i > 0})
	}
	if p, err := c.Profiles(t.Context()); err != nil || !reflect.DeepEqual(p, node.profiles) {
		t.Errorf("profiles: %v, %+v", err, p)
	}
	if p, err := c.BriefProfiles(t.Context()); err != nil || len(p.Devices) != briefStages || p.Devices[0].Node != "node-69" || p.Links[0].FromNode != "node-1" || *p.Rest != (ProfilesRest{58, 58}) {
		t.Errorf("brief profiles: %v, %+v", err, p)
	}
	got, err := c.Status(t.Context())
	if err != nil || !reflect.DeepEqual(got, node.status) {
		t.Errorf("status: %v\n got %+v\nwant %+v", err, got, node.status)
	}
	invite, err := c.Invite(t.Context(), InviteRequest{time.Hour, 3, true})
	if err != nil || invite != "pnode1-x" {
		t.Errorf("invite: %q, %v", invite, err)
	}
	if list, err := c.Invites(t.Context()); err != nil || len(list) != 1 || list[0].Peers[0] != "ada" {
		t.Errorf("invites: %+v, %v", list, err)
	}
	if done, err := c.Revoke(t.Context(), RevokeRequest{Target: "ada", Members: true, Reason: "why"}); err != nil || done != "done" {
		t.Errorf("revoke: %q, %v", done, err)
	}
	if err := errors.Join(c.Leave(t.Context()), c.Stop(t.Context())); err != nil {
		t.Error(err)
	}
	if want := []string{"checkpoints", "profiles", "profiles", "invite 1h0m0s 3 true", "invites", "revoke ada true why", "leave", "stop"}; !reflect.DeepEqual(node.told, want) {
		t.Errorf("told %v, want %v", node.told, want)
	}
	if c.PID() != os.Getpid() || c.Dir() != dir {
		t.Errorf("pid %d, dir %s", c.PID(), c.Dir())
	}
}

func TestRefusalsKeepTheirReason(t *testing.T) {
	node := &fakeNode{refuse: errors.New("the roster is full")}
	dir, _ := serve(t, node, nil)
	c := dial(t, dir)
	if err := c.Leave(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the roster is full") {
		t.Errorf("got %v", err)
	}
	node.refuse = fmt.Errorf("node: no address: %w", ErrNotReady)
	if _, err := c.Invite(t.Context(), InviteRequest{TTL: time.Hour, Uses: 1}); !errors.Is(err, ErrNotReady) {
		t.Errorf("got %v", err)
	}
	node.refuse = NotReady("no address")
	_, err := c.Invite(t.Context(), InviteRequest{TTL: time.Hour, Uses: 1})
	if want := "not ready yet: no address"; !errors.Is(err, ErrNotReady) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	told := len(node.told)
	for _, bad := range []struct {
		ttl  time.Duration
		uses int
	}{{0, 1}, {MaxInviteTTL + time.Second, 1}, {time.Hour, 0}, {time.Hour, MaxInviteUses + 1}} {
		if _, err := c.Invite(t.Context(), InviteRequest{TTL: bad.ttl, Uses: bad.uses}); !errors.Is(err, ErrRefused) {
			t.Errorf("%v: got %v", bad, err)
		}
	}
	for _, bad := range []RevokeRequest{{}, {Target: strings.Repeat("x", maxTargetBytes+1)}, {Target: "x", Reason: strings.Repeat("x", MaxReasonBytes+1)}} {
		if _, err := c.Revoke(t.Context(), bad); !errors.Is(err, ErrRefused) {
			t.Errorf("%.40v: got %v", bad, err)
		}
	}
	long := struct {
		Uses string `json:"uses"`
	}{strings.Repeat("x", maxBodyBytes)}
	if err := c.call(t.Context(), http.MethodPost, "/v1/invite", long, nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a long body: %v", err)
	}
	if len(node.told) != told {
		t.Errorf("the node was told %v", node.told[told:])
	}
}

func TestStatusWithoutFiniteLoss(t *testing.T) {
	nan := nan()
	dir, _ := serve(t, &fakeNode{status: Status{Loss: &nan, HeldOut: &nan, HeldOutF32: &nan}}, nil)
	if st, err := dial(t, dir).Status(t.Context()); err != nil || st.Loss != nil || st.HeldOut != nil || st.HeldOutF32 != nil {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestARunThatWaitsHasNoSpeed(t *testing.T) {
	dir, _ := serve(t, &fakeNode{status: Status{Waiting: "no leader", TokensPerS: 900, ETAS: 60, Step: 3}}, nil)
	if st, err := dial(t, dir).Status(t.Context()); err != nil || st.TokensPerS != 0 || st.ETAS != 0 || st.Step != 3 {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestDialExplains(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	dir, _ := serve(t, &fakeNode{}, nil)
	other, err := readAddress(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		put  func(dir string) error
		want []string
	}{
		{"no file", func(string) error { return nil }, []string{"no node runs in", "pnode train", "--dir"}},
		{"stale", func(dir string) error { return writeFile(dir, AddressFile, Address{Addr: free, Token: "t", PID: 4711}) }, []string{"no node runs in", "left over from process 4711", "refused"}},
		{"reused port", func(dir string) error {
			return writeFile(dir, AddressFile, Address{Addr: other.Addr, Token: "t", PID: 1})
		}, []string{"another program answers", "remove"}},
		{"garbage", func(dir string) error { return os.WriteFile(filepath.Join(dir, AddressFile), []byte("{"), 0o600) }, []string{AddressFile}},
	} {
		dir := t.TempDir()
		if err := tt.put(dir); err != nil {
			t.Fatal(err)
		}
		_, err := Dial(t.Context(), dir)
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		if tt.name != "garbage" && !errors.Is(err, ErrNoNode) {
			t.Errorf("%s: does not wrap ErrNoNode: %v", tt.name, err)
		}
		for _, w := range append(tt.want, dir) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in: %v", tt.name, w, err)
			}
		}
	}
}

func TestDialFindsALocalNode(t *testing.T) {
	dir, _ := serve(t, &fakeNode{status: Status{Run: "found"}}, nil)
	run := filepath.Join(t.TempDir(), "odd [name]*")
	if runtime.GOOS == "windows" {
		run = filepath.Join(t.TempDir(), "odd [name]")
	}
	for _, node := range []string{"node-0", "node-1"} {
		if err := os.MkdirAll(filepath.Join(run, node), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	a, err := readAddress(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(filepath.Join(run, "node-1"), AddressFile, a); err != nil { // node-0 is gone
		t.Fatal(err)
	}
	if st, err := dial(t, run).Status(t.Context()); err != nil || st.Run != "found" {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestAddressFileLivesAsLongAsTheServer(t *testing.T) {
	dir, stop := serve(t, &fakeNode{}, nil)
	path := filepath.Join(dir, AddressFile)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v", info.Mode())
	}
	stop()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != ViewFile {
		t.Errorf("left behind: %v, %v", entries, err)
	}

	dir, stop = serve(t, &fakeNode{}, nil)
	next := Address{Addr: "127.0.0.1:1", Token: "next", PID: 1}
	if err := writeFile(dir, AddressFile, next); err != nil {
		t.Fatal(err)
	}
	stop()
	if a, err := readAddress(dir); err != nil || a != next {
		t.Errorf("the next node's address became %+v, %v", a, err)
	}
}

func TestListenNeedsAFolder(t *testing.T) {
	if _, err := Listen(Options{Dir: filepath.Join(t.TempDir(), "none"), Node: &fakeNode{}}); err == nil {
		t.Error("no error")
	}
}

func (n *fakeNode) MayInvite() error { return n.refuse }

func (n *fakeNode) Newcomers() ([]Newcomer, error) { return n.newcomers, n.noLAN }

func (n *fakeNode) Admit(_ context.Context, code string) (string, error) {
	return "laptop may join", n.note("admit " + code)
}

func (n *fakeNode) Refuse(r Refusal) ([]Newcomer, error) {
	until := ""
	if !r.Until.IsZero() {
		until = " until " + r.Until.Format(time.RFC3339Nano)
	}
	return n.newcomers, n.note("refuse " + r.Code + until)
}
