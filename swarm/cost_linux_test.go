package swarm

import (
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pnode/swarm/topics"
)

// TestCostOfMembers shows what members of a run cost each node without anything to compute: connections, memory, goroutines, processor time
// and bytes, at rest and with heartbeats at their paces. PNODE_MEMBERS says for how many members. However many there are, a node at rest sends
// less than mostAtRest, and is connected to no more than those of a full mesh.
func TestCostOfMembers(t *testing.T) {
	sizes := os.Getenv("PNODE_MEMBERS")
	if sizes == "" {
		sizes = "8"
	}
	for _, size := range strings.Fields(sizes) {
		members, err := strconv.Atoi(size)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(size, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { costOf(t, members) })
		})
	}
}

// processorTime returns what this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// memoryInUse returns the bytes in use, stacks included.
func memoryInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

const (
	fullMesh   = 64
	mostAtRest = 5_000 // bytes a second; 2,200 of 64 members, the largest full mesh
)

func costOf(t *testing.T, members int) {
	t.Helper()
	n := newVirtualNet(t)
	var sent atomic.Int64
	n.Sent = func(_, _ netip.Addr, bytes int) { sent.Add(int64(bytes)) }
	memory, goroutines, used := memoryInUse(), runtime.NumGoroutine(), processorTime(t)
	c := newCrowd(t, n, members, fullMesh)
	each := func(x float64) float64 { return x / float64(members) }
	time.Sleep(30 * time.Second)
	connections := 0
	for _, s := range c.all {
		connections += len(s.Members())
	}
	t.Logf("each of %d: %.1f connections, %.0f KiB of memory, %.0f goroutines; %.0f ms and %.0f kB to join", members, each(float64(connections)),
		each(float64(memoryInUse()-memory)/1024), each(float64(runtime.NumGoroutine()-goroutines)), each((processorTime(t)-used).Seconds()*1000), each(float64(sent.Load())/1000))
	c.untilHeard(2 * time.Minute)

	const rest, speaking, size = 30, 32, 300
	pace := max(1, (members+63)/64)
	used, before := processorTime(t), sent.Load()
	time.Sleep(rest * time.Second)
	atRest := each(float64(sent.Load()-before) / rest)
	t.Logf("a second at rest: %.2f ms, %.1f kB", each((processorTime(t)-used).Seconds()*1000/rest), atRest/1000)
	if mean := each(float64(connections)); atRest > mostAtRest || mean >= fullMesh {
		t.Errorf("each of %d has %.1f connections and sends %.0f bytes a second at rest, want fewer than %d and at most %d", members, mean, atRest, fullMesh, mostAtRest)
	}
	used, before = processorTime(t), sent.Load()
	for second := range speaking {
		for i, s := range c.all {
			if i%pace != second%pace {
				continue
			}
			if err := s.Topics().Publish(c.ctx, topics.Events, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
	}
	t.Logf("a second with heartbeats of %d bytes, one each %d s: %.2f ms, %.1f kB", size, pace, each((processorTime(t)-used).Seconds()*1000/speaking), each(float64(sent.Load()-before)/1000/speaking))
}
