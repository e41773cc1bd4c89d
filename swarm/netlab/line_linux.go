package netlab

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Line describes a line, the same in both directions.
type Line struct {
	Rate    float64       // bits a second, counted with IP's headers; 0 is no limit
	Delay   time.Duration // one way
	Loss    float64       // share of packets, 0 to 1
	Reorder float64       // share of packets that are late
	Late    time.Duration // how late these are; 0 means 10 ms
	Queue   int           // bytes that wait before more are dropped; 0 means 100 ms at Rate
	MTU     int           // largest packet that the ends send; 0 means 1500
	Seed    uint64        // of losses and of lateness
	// Kernel has the kernel keep to Rate and Queue, by tc's token bucket filter: for lines without anything else, where this process
	// may not get the processor in time. Such a line cannot be changed.
	Kernel bool
}

const (
	maxPacket = 65536
	// tunQueue is how many packets the kernel keeps for the line: enough that only the line drops any.
	tunQueue = 10000
)

// ethernetHeader is the bytes that the kernel counts besides a packet's.
const ethernetHeader = 14

// shape has the kernel keep both ends of a pair of interfaces to a line's rate.
func (w wire) shape(line Line) {
	line = line.filled()
	for _, end := range []struct {
		space *space
		name  string
	}{{w.outer, w.outerName}, {w.inner, w.innerName}} {
		end.space.command("", "tc", "qdisc", "add", "dev", end.name, "root", "stab", "overhead", fmt.Sprint(-ethernetHeader),
			"tbf", "rate", fmt.Sprintf("%.0fbit", line.Rate), "burst", fmt.Sprint(kernelBurst), "limit", fmt.Sprint(line.Queue))
	}
}

// kernelBurst is how many bytes the kernel lets through at once.
const kernelBurst = 8 << 10

// draw makes an interface at either end and carries packets between the two.
func (l *Lab) draw(w wire, line Line) (both []*way) {
	l.t.Helper()
	if line.MTU == 0 {
		line.MTU = 1500
	}
	outer, inner := l.openTUN(w.outer, w.outerName, line.MTU), l.openTUN(w.inner, w.innerName, line.MTU)
	var ways sync.WaitGroup
	for i, ends := range [][2]*os.File{{outer, inner}, {inner, outer}} {
		way := newWay(line, uint64(i), ends[1])
		ways.Go(func() { way.read(ends[0]) })
		ways.Go(way.write)
		both = append(both, way)
	}
	l.t.Cleanup(func() {
		outer.Close()
		inner.Close()
		ways.Wait()
	})
	return both
}

// openTUN makes an interface whose packets are read from and written to the file.
func (l *Lab) openTUN(s *space, name string, mtu int) *os.File {
	l.t.Helper()
	var file *os.File
	var err error
	entered := s.run(func() {
		var fd int
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		var request *unix.Ifreq
		if request, err = unix.NewIfreq(name); err == nil {
			request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		file = os.NewFile(uintptr(fd), name)
	})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		l.t.Skipf("skipped: /dev/net/tun: %v", err)
	}
	if err = errors.Join(entered, err); err != nil {
		l.t.Fatalf("netlab: open /dev/net/tun in %s: %v", s.name, err)
	}
	s.ip(fmt.Sprintf("link set %s mtu %d txqueuelen %d", name, mtu, tunQueue))
	return file
}

// way is one direction of a line.
type way struct {
	out    *os.File
	chance *rand.Rand
	free   time.Time // when the line has sent what it took

	mu     sync.Mutex // guards what follows
	line   Line
	flight flight
	over   bool
	fresh  chan struct{}
}

func newWay(line Line, direction uint64, out *os.File) *way {
	return &way{line: line.filled(), out: out, chance: rand.New(rand.NewPCG(line.Seed, direction)), fresh: make(chan struct{}, 1)}
}

// filled returns the line with defaults for what is 0.
func (l Line) filled() Line {
	if l.Late == 0 {
		l.Late = 10 * time.Millisecond
	}
	if l.Queue == 0 {
		l.Queue = int(l.Rate / 8 / 10)
	}
	return l
}

// packet is due at the far end.
type packet struct {
	due   time.Time
	order uint64
	data  []byte
}

// flight is a heap of packets, the one due first on top.
type flight struct {
	packets []packet
	count   uint64
}

func (f *flight) Len() int      { return len(f.packets) }
func (f *flight) Swap(i, j int) { f.packets[i], f.packets[j] = f.packets[j], f.packets[i] }
func (f *flight) Push(x any)    { f.packets = append(f.packets, x.(packet)) }

func (f *flight) Less(i, j int) bool {
	a, b := f.packets[i], f.packets[j]
	return a.due.Before(b.due) || a.due.Equal(b.due) && a.order < b.order
}

func (f *flight) Pop() any {
	last := f.packets[len(f.packets)-1]
	f.packets = f.packets[:len(f.packets)-1]
	return last
}

// read takes packets in until the file is closed.
func (w *way) read(in *os.File) {
	buffer := make([]byte, maxPacket)
	for {
		n, err := in.Read(buffer)
		if err != nil {
			break
		}
		w.mu.Lock()
		due, ok := w.pass(time.Now(), n)
		if ok {
			w.flight.count++
			heap.Push(&w.flight, packet{due, w.flight.count, append([]byte(nil), buffer[:n]...)})
		}
		w.mu.Unlock()
		if ok {
			w.wake()
		}
	}
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.wake()
}

func (w *way) wake() {
	select {
	case w.fresh <- struct{}{}:
	default:
	}
}

// pass returns when a packet of n bytes that comes now arrives, or false where it is lost. A full queue drops the
// newest packet.
func (w *way) pass(now time.Time, n int) (due time.Time, ok bool) {
	if w.free.Before(now) {
		w.free = now
	}
	if w.line.Rate > 0 {
		waiting := w.free.Sub(now).Seconds() * w.line.Rate / 8
		if int(waiting)+n > w.line.Queue {
			return time.Time{}, false
		}
		w.free = w.free.Add(time.Duration(float64(n) * 8 / w.line.Rate * float64(time.Second)))
	}
	if w.chance.Float64() < w.line.Loss {
		return time.Time{}, false
	}
	due = w.free.Add(w.line.Delay)
	if w.chance.Float64() < w.line.Reorder {
		due = due.Add(w.line.Late)
	}
	return due, true
}

// write sends packets on when they are due, until no more come.
func (w *way) write() {
	timer := time.NewTimer(0)
	for {
		w.mu.Lock()
		over, next := w.over, time.Duration(-1)
		var due [][]byte
		for now := time.Now(); w.flight.Len() > 0; {
			if next = w.flight.packets[0].due.Sub(now); next > 0 {
				break
			}
			due = append(due, heap.Pop(&w.flight).(packet).data)
			next = -1
		}
		w.mu.Unlock()
		for _, data := range due {
			_, _ = w.out.Write(data) // an interface that is down loses it
		}
		if over {
			return
		}
		var wait <-chan time.Time
		if next > 0 {
			timer.Reset(next)
			wait = timer.C
		}
		if len(due) == 0 {
			select {
			case <-w.fresh:
			case <-wait:
			}
		}
	}
}
