package node

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"pnode/node/checkpointer"
	"pnode/pipeline/gather/seals"
	"pnode/swarm/streams"
)

func TestAskAndAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		handle func([]byte) ([]byte, error)
		want   string
		err    error
	}{
		{"answer", func(r []byte) ([]byte, error) { return append([]byte("re: "), r...), nil }, "re: hello", nil},
		{"largest exhibit", func([]byte) ([]byte, error) { return make([]byte, seals.MaxExhibitBytes), nil }, string(make([]byte, seals.MaxExhibitBytes)), nil},
		{"empty answer", func([]byte) ([]byte, error) { return nil, nil }, "", nil},
		{"refusal", func([]byte) ([]byte, error) { return nil, errors.New("no room") }, "", checkpointer.ErrRemote},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := net.Pipe()
			served := make(chan error, 1)
			go func() { served <- reply(server, c.handle) }()
			got, err := ask(t.Context(), client, []byte("hello"))
			if !errors.Is(err, c.err) || string(got) != c.want {
				t.Errorf("got %q, %v", got, err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAskEndsWithItsContext(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	go func() { _, _ = streams.ReadMessage(server, maxRequestBytes) }() // reads and never answers
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := ask(ctx, client, []byte("hello"))
		done <- err
	}()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, ctx.Err()) {
			t.Errorf("got %v, want %v", err, ctx.Err())
		}
	case <-time.After(time.Minute):
		t.Fatal("still waiting")
	}
}
