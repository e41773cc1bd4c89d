package mux

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pnode/swarm/netlab"
	"pnode/swarm/transport"
)

// The line of BenchmarkKernelLine: 100 Mbit/s counted with IP's headers, 40 ms there and back, a queue of 100 ms. A packet
// of 1,500 bytes carries 1,448 of TCP's payload.
const (
	kernelRate    = 100e6
	kernelDelay   = 20 * time.Millisecond
	kernelPayload = kernelRate / 8 * 1448 / 1500
)

// BenchmarkKernelLine measures, in real time, how much of what TCP can carry over a line arrives as payload, by
// connections and by the kernel's congestion control, and how long a message of urgency 0 and its answer take meanwhile.
// It needs the rights of root.
func BenchmarkKernelLine(b *testing.B) {
	for _, control := range []string{"bbr", "cubic"} {
		for _, loss := range []float64{0, 0.005} {
			for _, connections := range []int{1, 4} {
				b.Run(fmt.Sprintf("%s/loss=%g%%/conns=%d", control, 100*loss, connections), func(b *testing.B) {
					lab := netlab.New(b)
					far := lab.Host("far", netlab.Public)
					near := lab.Host("near", netlab.Public, netlab.Line{Rate: kernelRate, Delay: kernelDelay, Loss: loss})
					measureKernelLine(b, near, far, connections, control)
				})
			}
		}
	}
}

func measureKernelLine(b *testing.B, near, far *netlab.Host, connections int, control string) {
	const settle, during = 4 * time.Second, 6 * time.Second
	var listener net.Listener
	var err error
	far.Do(func() { listener, err = net.Listen("tcp4", ":700") })
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	var come atomic.Int64
	var mu sync.Mutex
	var trips []time.Duration
	var ends []*Conn
	for range connections {
		raw, err := near.Dial("tcp4", far.Addr().String()+":700")
		if err != nil {
			b.Fatal(err)
		}
		accepted, err := listener.Accept()
		if err != nil {
			b.Fatal(err)
		}
		setControl(b, raw.(*net.TCPConn), control)
		client, server := secured(b, raw, accepted)
		a, z := New(client, Config{Dialer: true}), New(server, Config{})
		ends = append(ends, a, z)
		urgent, echo := benchJoined(b, a, z)
		urgent.SetUrgency(0)
		pieces, sink := benchJoined(b, a, z)
		pieces.SetUrgency(2)
		go sendPieces(pieces)
		go takePieces(sink, &come)
		go func() { // answers
			buffer := make([]byte, 1)
			for {
				if _, err := echo.Read(buffer); err != nil {
					return
				}
				echo.SetUrgency(0)
				echo.Write(buffer)
			}
		}()
		go func() {
			buffer := make([]byte, 1)
			for a.Err() == nil {
				time.Sleep(50 * time.Millisecond)
				begin := time.Now()
				urgent.Write(buffer)
				if _, err := urgent.Read(buffer); err == nil {
					mu.Lock()
					trips = append(trips, time.Since(begin))
					mu.Unlock()
				}
			}
		}()
	}
	time.Sleep(settle)
	mu.Lock()
	trips = nil
	mu.Unlock()
	before, begin, used := come.Load(), time.Now(), processorTime()
	time.Sleep(during)
	rate := float64(come.Load()-before) / time.Since(begin).Seconds()
	b.ReportMetric(100*rate/kernelPayload, "%payload")
	b.ReportMetric((processorTime()-used).Seconds()/during.Seconds(), "cores")
	mu.Lock()
	slices.Sort(trips)
	if n := len(trips); n > 0 {
		b.ReportMetric(float64(trips[n/2])/1e6, "ms-urgent")
		b.ReportMetric(float64(trips[n*95/100])/1e6, "ms-urgent-p95")
	}
	mu.Unlock()
	s := ends[0].Stats()
	b.ReportMetric(float64(s.SmoothedRTT)/1e6, "ms-rtt")
	b.ReportMetric(0, "ns/op")
	for _, c := range ends {
		c.Close(0, "")
	}
	for _, c := range ends {
		<-c.Done()
	}
}

// setControl chooses the congestion control of what a socket sends.
func setControl(b *testing.B, conn *net.TCPConn, control string) {
	raw, err := conn.SyscallConn()
	if err == nil {
		err2 := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, control)
		})
		err = errors.Join(err, err2)
	}
	if err != nil {
		b.Skipf("congestion control %s: %v", control, err)
	}
}

// sendPieces writes as pipeline/link does: a header and 32 KiB, again and again.
func sendPieces(s transport.Stream) {
	head, payload := make([]byte, 64), make([]byte, 32<<10)
	for {
		if _, err := s.Write(head); err != nil {
			return
		}
		if _, err := s.Write(payload); err != nil {
			return
		}
	}
}

// takePieces reads what sendPieces writes and answers at most every 10 ms with 8 bytes.
func takePieces(s transport.Stream, come *atomic.Int64) {
	piece := make([]byte, 64+32<<10)
	var last time.Time
	for {
		if _, err := io.ReadFull(s, piece); err != nil {
			return
		}
		come.Add(int64(len(piece)))
		if now := time.Now(); now.Sub(last) > 10*time.Millisecond {
			last = now
			s.Write(piece[:8])
		}
	}
}
