package node

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"pnode/swarm"
)

func TestAskAndAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		handle func([]byte) ([]byte, error)
		want   string
		err    error
	}{
		{"answer", func(r []byte) ([]byte, error) { return append([]byte("re: "), r...), nil }, "re: hello", nil},
		{"empty answer", func([]byte) ([]byte, error) { return nil, nil }, "", nil},
		{"refusal", func([]byte) ([]byte, error) { return nil, errors.New("no room") }, "", errRemote},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := net.Pipe()
			served := make(chan error, 1)
			go func() { served <- answer(server, c.handle) }()
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
	go func() { _, _ = swarm.ReadMessage(server, maxRequestBytes) }() // reads and never answers
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

func FuzzDecodeCopyRequest(f *testing.F) {
	f.Add([]byte(`{"generation":3,"step":20,"replica":0,"stage":1,"chunks":["0000000000000000000000000000000000000000000000000000000000000000"]}`))
	f.Add([]byte(`{"generation":3,"step":20,"replica":-1,"stage":1,"chunks":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeCopyRequest(data)
		if err != nil {
			return
		}
		step, ok := pinStep(pinName(r.Generation, r.Step, r.Replica, r.Stage))
		if !ok || step != r.Step {
			t.Fatalf("the pin of %+v reads as step %d", r, step)
		}
	})
}

func TestFixedWriterRefusesMoreThanItsBytes(t *testing.T) {
	dst := make([]byte, 4)
	w := newFixedWriter(dst)
	if _, err := io.WriteString(w, "abc"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "de"); err == nil {
		t.Fatal("wrote 5 bytes into 4")
	}
	if string(dst[:3]) != "abc" {
		t.Errorf("wrote %q", dst)
	}
}
