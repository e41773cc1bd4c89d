package hole

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/swarm/admission"
	"pnode/swarm/streams"
	"pnode/swarm/tasks"
)

// pair makes two hosts that are connected over TCP and members for each other, with their holes.
func pair(t *testing.T) (a, b *Holes, idB peer.ID) {
	t.Helper()
	var hosts [2]host.Host
	var holes [2]*Holes
	for i := range hosts {
		h, err := libp2p.New(libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"), libp2p.DisableRelay())
		if err != nil {
			t.Fatal(err)
		}
		group := tasks.New()
		t.Cleanup(func() {
			group.Close()
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			group.Wait()
		})
		hosts[i] = h
		holes[i] = &Holes{Streams: &streams.Streams{Host: h, Peers: admission.NewPeers(), Tasks: group, Log: slog.New(slog.DiscardHandler)}}
	}
	if err := hosts[0].Connect(t.Context(), peer.AddrInfo{ID: hosts[1].ID(), Addrs: hosts[1].Addrs()}); err != nil {
		t.Fatal(err)
	}
	for i, h := range holes {
		other := hosts[1-i].ID()
		h.Streams.Peers.Arrive(other)
		if _, _, err := h.Streams.Peers.Admit(other, admission.Capability{}, admission.Instance{}); err != nil {
			t.Fatal(err)
		}
	}
	return holes[0], holes[1], hosts[1].ID()
}

// What is written before Close arrives, and Close ends what waits at this end.
func TestStreams(t *testing.T) {
	a, b, idB := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	served := make(chan net.Conn, 1)
	b.Serve("test/1", func(_ context.Context, c net.Conn) { served <- c })
	ours, err := a.For("test/1")(ctx, idB)
	if err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("through the hole "), 10_000)
	go func() {
		ours.Write(sent)
		ours.Close()
	}()
	theirs := <-served
	if got, err := io.ReadAll(theirs); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d arrive: %v", len(got), len(sent), err)
	}
	if _, ok := theirs.RemoteAddr().(Addr); !ok {
		t.Errorf("comes from %v", theirs.RemoteAddr())
	}
	if ours, err = a.For("test/1")(ctx, idB); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	(<-served).Close()
	read := make(chan error, 1)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		read <- err
		_, err = ours.Read(make([]byte, 1))
		read <- err
	}()
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("a stream that the other end closed reads %v", err)
	}
	ours.Close()
	if err := <-read; err == nil || ctx.Err() != nil {
		t.Error("a closed stream is read")
	}
	if _, err := ours.Write(make([]byte, 1)); err == nil {
		t.Error("a closed stream is written to")
	}
}

// A member has no more than its streams at once, and its place back for each that has ended.
func TestStreamsAreBounded(t *testing.T) {
	a, b, idB := pair(t)
	served := make(chan net.Conn, 2*maxPerPeer)
	b.Serve("test/1", func(_ context.Context, c net.Conn) {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			c.Write([]byte{1})
		}
		served <- c
	})
	// answered opens a stream, and reports whether the other end took it.
	answered := func() (net.Conn, bool) {
		c, err := a.For("test/1")(t.Context(), idB)
		if err != nil {
			return nil, false
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err = c.Write([]byte{1}); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil {
			c.Close()
		}
		return c, err == nil
	}
	var open []net.Conn
	for range maxPerPeer {
		c, ok := answered()
		if !ok {
			t.Fatalf("stream %d is refused", len(open))
		}
		open = append(open, c)
	}
	if _, ok := answered(); ok {
		t.Error("one stream too many is taken")
	}
	for range open {
		(<-served).Close()
	}
	for deadline := time.Now().Add(30 * time.Second); ; { // the handler's goroutine gives it back
		if _, ok := answered(); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no place is given back")
		}
	}
}
