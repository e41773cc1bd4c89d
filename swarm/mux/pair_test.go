package mux

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/memory"
	"pnode/swarm/transport"
)

// pairs lists ways to make two connected ends. The suite holds for all of them.
var pairs = []struct {
	name string
	make func(testing.TB) (dialer, acceptor transport.Conn)
}{
	{"quic", quicPair},
	{"tls", func(t testing.TB) (dialer, acceptor transport.Conn) { return muxPair(t, tlsPair) }},
	{"tcp", func(t testing.TB) (dialer, acceptor transport.Conn) { return muxPair(t, tcpPair) }},
	{"memory", memoryPair},
	{"pipe", func(t testing.TB) (dialer, acceptor transport.Conn) {
		return muxPair(t, func(testing.TB) (net.Conn, net.Conn) { return net.Pipe() })
	}},
}

// muxPair joins two connections over what carry makes, and waits at the end until both have ended.
func muxPair(t testing.TB, carry func(testing.TB) (net.Conn, net.Conn)) (dialer, acceptor *Conn) {
	a, b := carry(t)
	dialer, acceptor = New(a, Config{Dialer: true}), New(b, Config{})
	t.Cleanup(func() {
		dialer.Close(0, "the test has ended")
		acceptor.Close(0, "the test has ended")
		<-dialer.Done()
		<-acceptor.Done()
	})
	return dialer, acceptor
}

func tcpPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// tlsPair joins two ends by TLS over TCP on loopback.
func tlsPair(t testing.TB) (net.Conn, net.Conn) {
	a, b := tcpPair(t)
	return secured(t, a, b)
}

func secured(t testing.TB, a, b net.Conn) (net.Conn, net.Conn) {
	client := tls.Client(a, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"test"}})
	server := tls.Server(b, serverTLS(t))
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return client, server
}

func serverTLS(t testing.TB) *tls.Config {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(nil, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"test"}, MinVersion: tls.VersionTLS13}
}

// quicConfig is pipeline/link's.
func quicConfig() *quic.Config {
	return &quic.Config{
		InitialStreamReceiveWindow: streamWindow, InitialConnectionReceiveWindow: connWindow,
		MaxStreamReceiveWindow: maxStreamWindow, MaxConnectionReceiveWindow: maxConnWindow,
		MaxIdleTimeout: idleTime, MaxIncomingStreams: maxStreams, MaxIncomingUniStreams: -1,
	}
}

func quicPair(t testing.TB) (dialer, acceptor transport.Conn) {
	t.Helper()
	l, err := quic.ListenAddr("127.0.0.1:0", serverTLS(t), quicConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a, err := quic.DialAddr(context.Background(), l.Addr().String(),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"test"}}, quicConfig())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.CloseWithError(0, "")
		b.CloseWithError(0, "")
	})
	return transport.QUIC(a), transport.QUIC(b)
}

// memoryPair joins two ends without packets. Their lines carry as much as makes what is written wait for its turn.
func memoryPair(t testing.TB) (dialer, acceptor transport.Conn) {
	path := func() memory.Path {
		return memory.Path{
			Latency: func() time.Duration { return time.Millisecond },
			Up:      memory.NewRate(1e9), Down: memory.NewRate(1e9),
		}
	}
	a, b := memory.Pair(memory.End{Out: path()}, memory.End{Out: path()})
	t.Cleanup(func() {
		a.Close(0, "")
		b.Close(0, "")
	})
	return a, b
}

// transportOf returns what the ends of a pair say of themselves.
func transportOf(name string) plan.Transport {
	if name == "quic" || name == "memory" {
		return plan.QUIC
	}
	return plan.TCP
}
