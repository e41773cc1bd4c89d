package swarm

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/listen"
	"pnode/swarm/streams"
)

const testRun plan.RunID = "testrun"

// testOwner is an owner key in a folder of its own.
func testOwner(t testing.TB) admission.Owner {
	t.Helper()
	o, err := admission.CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func testIdentity(t testing.TB) admission.Identity {
	t.Helper()
	id, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func testLogger(t testing.TB) *slog.Logger {
	if os.Getenv("SWARM_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// testMember makes the configuration of a member with a direct capability.
func testMember(t testing.TB, o admission.Owner, run plan.RunID) Config {
	t.Helper()
	id := testIdentity(t)
	c, err := o.Capability(run, id, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return Config{Identity: id, Run: run, OwnerKey: o.PublicKey(), Capability: c, Logger: testLogger(t)}
}

func start(t testing.TB, cfg Config) *Swarm {
	t.Helper()
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// cluster starts n members, all but the first with the first as bootstrap, and waits until
// each is connected to all others.
func cluster(t testing.TB, n int) []*Swarm {
	t.Helper()
	return clusterOn(t, n, func() *host.Simulated { return nil })
}

// clusterOn is cluster on the sockets that sim hands out; nil stands for real ones.
func clusterOn(t testing.TB, n int, sim func() *host.Simulated) []*Swarm {
	t.Helper()
	o := testOwner(t)
	var out []*Swarm
	for range n {
		cfg := testMember(t, o, testRun)
		cfg.Simulated = sim()
		if len(out) > 0 {
			cfg.Bootstrap = out[0].Addrs()
		}
		out = append(out, start(t, cfg))
	}
	for _, s := range out {
		waitMembers(t, testContext(t), s, n-1)
	}
	return out
}

// waitMembers waits until s has n members besides itself.
func waitMembers(t testing.TB, ctx context.Context, s *Swarm, n int) {
	t.Helper()
	for {
		changed := s.Changed()
		have := len(s.Members())
		if have == n {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%s has %d members, want %d", s.ID(), have, n)
		}
	}
}

func peerID(t testing.TB, p plan.PeerID) peer.ID {
	t.Helper()
	id, err := peer.Decode(string(p))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestStreams(t *testing.T) {
	c := cluster(t, 2)
	ctx := testContext(t)
	c[1].Handle("/pnode/test/1", func(_ context.Context, from plan.PeerID, st streams.Stream) {
		if from != c[0].ID() {
			t.Errorf("stream from %s", from)
		}
		io.Copy(st, st)
	})
	st, err := c[0].Open(ctx, c[1].ID(), "/pnode/test/1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := st.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(st); err != nil || string(b) != "hello" {
		t.Fatalf("echo: %q %v", b, err)
	}
	st.Close()
	if _, err := c[0].Open(ctx, testIdentity(t).Peer(), "/pnode/test/1"); !errors.Is(err, admission.ErrNotMember) {
		t.Errorf("open to an unknown peer: %v", err)
	}
}

// A Read that waits for a silent peer ends when the stream or the swarm is closed.
func TestCloseUnblocks(t *testing.T) {
	c := cluster(t, 2)
	ctx := testContext(t)
	started := make(chan struct{})
	ended := make(chan error, 1)
	c[1].Handle("/pnode/test/1", func(ctx context.Context, _ plan.PeerID, st streams.Stream) {
		close(started)
		_, err := st.Read(make([]byte, 1))
		ended <- err
	})
	st, err := c[0].Open(ctx, c[1].ID(), "/pnode/test/1")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := st.Read(make([]byte, 1))
		read <- err
	}()
	<-started
	if err := c[1].Close(); err != nil {
		t.Fatal(err)
	}
	if <-ended == nil || <-read == nil {
		t.Error("a read succeeded without data")
	}
	waitMembers(t, ctx, c[0], 0)
}

// A stream's Close alone unblocks its own Read and a Write nobody takes.
func TestStreamCloseUnblocksWrite(t *testing.T) {
	c := cluster(t, 2)
	c[1].Handle("/pnode/test/1", func(ctx context.Context, _ plan.PeerID, _ streams.Stream) { <-ctx.Done() })
	st, err := c[0].Open(testContext(t), c[1].ID(), "/pnode/test/1")
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := st.Write(make([]byte, 64<<20)) // more than any window
		wrote <- err
	}()
	st.Close()
	if err := <-wrote; err == nil {
		t.Error("write succeeded")
	}
}

func TestPortInUse(t *testing.T) {
	o := testOwner(t)
	a := start(t, testMember(t, o, testRun))
	for _, addr := range a.Addrs() {
		parts := strings.Split(addr, "/") // /ip4/127.0.0.1/tcp/PORT/...
		cfg := testMember(t, o, testRun)
		cfg.Listen = []string{"127.0.0.1:" + parts[4]}
		_, err := New(t.Context(), cfg)
		if !errors.Is(err, listen.ErrPortInUse) || !strings.Contains(err.Error(), "--listen") {
			t.Errorf("listen on %s: %v", addr, err)
		}
	}
}

// Data goes both ways between a node on 0.0.0.0, whose UDP socket is shared, and one on a single address.
func TestUnspecifiedAddress(t *testing.T) {
	o := testOwner(t)
	cfg := testMember(t, o, testRun)
	cfg.Listen, cfg.Reach = []string{"0.0.0.0:0"}, host.ReachPublic
	a := start(t, cfg)
	cfg = testMember(t, o, testRun)
	b := start(t, cfg)
	ctx := testContext(t)
	if err := b.Connect(ctx, a.Addrs()...); err != nil {
		t.Fatal(err)
	}
	exchangeData(t, ctx, b, a)
	exchangeData(t, ctx, a, b)
}
