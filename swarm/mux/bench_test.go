package mux

import (
	"io"
	"testing"

	"pnode/swarm/transport"
)

const benchBytes = 4 << 20

// BenchmarkStream compares 4 MB messages over one stream on loopback: bare TLS over TCP, this package on it, QUIC.
// core-s/GB counts the processor time of both ends together.
func BenchmarkStream(b *testing.B) {
	b.Run("tls", func(b *testing.B) {
		to, from := tlsPair(b)
		defer to.Close()
		defer from.Close()
		benchmarkStream(b, to, from)
	})
	for _, pair := range pairs {
		if pair.name == "pipe" || pair.name == "tcp" {
			continue
		}
		name := map[string]string{"tls": "mux", "quic": "quic"}[pair.name]
		b.Run(name, func(b *testing.B) {
			near, far := pair.make(b)
			to, from := benchJoined(b, near, far)
			benchmarkStream(b, to, from)
			to.CancelWrite(1)
		})
	}
}

func benchJoined(b *testing.B, near, far transport.Conn) (to, from transport.Stream) {
	to, err := near.OpenStream(b.Context())
	if err == nil {
		_, err = to.Write([]byte{0})
	}
	if err == nil {
		from, err = far.AcceptStream(b.Context())
	}
	if err == nil {
		_, err = io.ReadFull(from, make([]byte, 1))
	}
	if err != nil {
		b.Fatal(err)
	}
	return to, from
}

func benchmarkStream(b *testing.B, to io.Writer, from io.Reader) {
	const before = 8 // the windows are wide then
	message, buffer := noise(benchBytes, 1), make([]byte, benchBytes)
	go func() {
		for range b.N + before {
			if _, err := to.Write(message); err != nil {
				return
			}
		}
	}()
	b.SetBytes(benchBytes)
	b.ReportAllocs()
	used := processorTime()
	for i := range b.N + before {
		if i == before {
			used = processorTime()
			b.ResetTimer()
		}
		if _, err := io.ReadFull(from, buffer); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processorTime()-used).Seconds()/(float64(b.N)*benchBytes/1e9), "core-s/GB")
}
