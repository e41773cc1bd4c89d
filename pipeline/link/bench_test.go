package link

import (
	"context"
	"io"
	"testing"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

const benchBytes = 4 << 20

// BenchmarkSend compares 4 MB messages through a session, over UDP on loopback, with the
// same bytes through a bare QUIC stream.
func BenchmarkSend(b *testing.B) {
	b.Run("session", benchmarkSession)
	b.Run("quic", benchmarkStream)
}

func benchmarkSession(b *testing.B) {
	c := loopback(b, 2, Options{})
	sessions := c.sessions(1)
	message := payload(benchBytes, 1)
	exchange := func(step, n int) error {
		sent := make(chan error, 1)
		go func() {
			for i := range n {
				f := wire.Frame{Tag: activation(1, plan.Step(step), i), Payload: message}
				if err := sessions[0].Send(context.Background(), c.ids[1], f); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		for i := range n {
			if _, err := sessions[1].Receive(b.Context(), c.ids[0], activation(1, plan.Step(step), i)); err != nil {
				return err
			}
		}
		return <-sent
	}
	if err := exchange(0, 8); err != nil { // widen the windows
		b.Fatal(err)
	}
	b.SetBytes(benchBytes)
	b.ResetTimer()
	if err := exchange(1, b.N); err != nil {
		b.Fatal(err)
	}
}

func benchmarkStream(b *testing.B) {
	networks := loopbackNetworks(b, 2)
	defer networks[0].close()
	defer networks[1].close()
	from := bareStream(b, networks, payload(benchBytes, 1))
	buffer := make([]byte, benchBytes)
	b.SetBytes(benchBytes)
	for i := range b.N + 8 {
		if i == 8 { // the windows are wide
			b.ResetTimer()
		}
		if _, err := io.ReadFull(from, buffer); err != nil {
			b.Fatal(err)
		}
	}
}

// bareStream joins two networks by one QUIC stream, on which the message is written again and
// again until the first one closes.
func bareStream(b *testing.B, networks []*quicNetwork, message []byte) io.Reader {
	b.Helper()
	out, err := networks[0].Dial(b.Context(), networks[1].Self(), plan.QUIC)
	if err != nil {
		b.Fatal(err)
	}
	in, _, err := networks[1].Accept(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	to, err := out.OpenStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			if _, err := to.Write(message); err != nil {
				return
			}
		}
	}()
	from, err := in.AcceptStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return from
}
