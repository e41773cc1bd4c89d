package cuda

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"pnode/kernels/gpu"
)

// fake stands in for NVIDIA's driver. It knows contexts by thread, refuses handles, addresses
// and parameters that are not right, and does what streams are given only when they are waited
// for. Memory and kernels are those of another machine.
type fake struct {
	mu       sync.Mutex
	machine  gpu.Driver
	work     gpu.Stream
	cards    int
	compute  Capability // of all cards
	fail     map[function]result
	failAt   map[function]int // calls of it that succeed first
	problems []string
	blas     *fakeBLASState

	next      uintptr
	current   map[int]uintptr // context by thread
	retained  map[uintptr]int // of each context; a card's is card + contextBase
	blocks    map[uintptr]block
	host      map[uintptr][]byte
	streams   map[uintptr][]func() error
	events    map[uintptr]*fakeEvent
	capturing map[uintptr]*fakeGraph // by stream
	graphs    map[uintptr]*fakeGraph // and what was made of them
	stale     bool                   // graphs do not change
	modules   map[uintptr]map[string]declared
	functions map[uintptr]declared
	calls     []function
	launches  []gpu.Launch
}

// block is device memory of one context.
type block struct {
	memory gpu.Memory
	bytes  uintptr
}

// declared is a kernel as its PTX declares it.
type declared struct {
	name  string
	sizes []int
}

const (
	contextBase = 0x1000
	handleBase  = 0x7e00_0000_0000 // of all other handles, and of addresses
)

// newFake makes a driver with so many cards the one that fakeLibrary calls.
func newFake(t *testing.T, machine gpu.Driver, cards int) *fake {
	t.Helper()
	work, err := machine.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{
		machine: machine, work: work, cards: cards, compute: 80, fail: map[function]result{}, failAt: map[function]int{},
		next: handleBase, current: map[int]uintptr{}, retained: map[uintptr]int{}, blocks: map[uintptr]block{},
		blas: newFakeBLAS(),
		host: map[uintptr][]byte{}, streams: map[uintptr][]func() error{}, events: map[uintptr]*fakeEvent{},
		capturing: map[uintptr]*fakeGraph{}, graphs: map[uintptr]*fakeGraph{}, modules: map[uintptr]map[string]declared{}, functions: map[uintptr]declared{},
	}
	active = f
	t.Cleanup(func() {
		if err := work.Close(); err != nil {
			t.Error(err)
		}
		for _, p := range f.problems {
			t.Error(p)
		}
	})
	return f
}

// active is the fake that the entry points belong to; tests with one do not run in parallel.
var active *fake

// begin records a call and gives the result that it must return at once, if any.
func (f *fake) begin(fn function) result {
	f.calls = append(f.calls, fn)
	if r, ok := f.fail[fn]; ok {
		if f.failAt[fn] == 0 {
			if fn == streamEndCapture { // it ends all the same
				clear(f.capturing)
			}
			return r
		}
		f.failAt[fn]--
	}
	if fn > ctxSetCurrent && f.retained[f.current[threadID()]] == 0 {
		return f.refuse(invalidContext, "%v on a thread without a live context", fn)
	}
	return success
}

// refuse is for calls that a program must not make.
func (f *fake) refuse(r result, format string, args ...any) result {
	f.problems = append(f.problems, "the driver was misused: "+fmt.Sprintf(format, args...))
	return r
}

func (f *fake) handle() uintptr {
	f.next += 1 << 26 // more than any block has
	return f.next
}

// at is the block of an address, and how far from its start that is.
func (f *fake) at(address, bytes uintptr) (block, int, bool) {
	for start, b := range f.blocks {
		if address >= start && address+bytes <= start+b.bytes {
			return b, int(address - start), true
		}
	}
	f.refuse(invalidValue, "address %#x with %d bytes is no memory of the card", address, bytes)
	return block{}, 0, false
}

// drain does what a stream was given, until the event comes if there is one.
func (f *fake) drain(stream uintptr, until *fakeEvent) result {
	if f.capturing[stream] != nil {
		return f.refuse(invalidHandle, "stream %#x is waited for while it is captured", stream)
	}
	for until == nil || !until.came {
		todo := f.streams[stream]
		if len(todo) == 0 {
			break
		}
		f.streams[stream] = todo[1:]
		if err := todo[0](); err != nil {
			return f.refuse(launchFailed, "%v", err)
		}
	}
	if err := f.work.Sync(); err != nil {
		return f.refuse(launchFailed, "%v", err)
	}
	return success
}

func (f *fake) enqueue(stream uintptr, do func() error) result {
	if _, ok := f.streams[stream]; !ok {
		return f.refuse(invalidHandle, "%#x is no stream", stream)
	}
	if g := f.capturing[stream]; g != nil {
		g.nodes = append(g.nodes, fakeNode{f.handle(), do, nil})
		return success
	}
	f.streams[stream] = append(f.streams[stream], do)
	return success
}

var (
	entryPattern = regexp.MustCompile(`\.visible \.entry (\w+)\(([^)]*)\)`)
	paramPattern = regexp.MustCompile(`\.param \.[a-z](\d+)`)
)

// declaredIn has what declarations found in each image: drivers load the same few.
var declaredIn sync.Map // of map[string]declared

// declarations reads PTX by itself, so that what the package reads is checked too.
func declarations(ptx string) map[string]declared {
	if known, ok := declaredIn.Load(ptx); ok {
		return known.(map[string]declared)
	}
	found := map[string]declared{}
	for _, m := range entryPattern.FindAllStringSubmatch(ptx, -1) {
		d := declared{name: m[1]}
		for _, p := range paramPattern.FindAllStringSubmatch(m[2], -1) {
			d.sizes = append(d.sizes, map[string]int{"32": 4, "64": 8}[p[1]])
		}
		if strings.Count(m[2], ".param") != len(d.sizes) {
			panic("a parameter of " + m[1] + " has no plain type")
		}
		found[d.name] = d
	}
	declaredIn.Store(ptx, found)
	return found
}

// parameters takes apart what a launch passes: numbers one after the other, each at a multiple
// of its size, in the order of the declaration.
func (d declared) parameters(packed []byte) (params []gpu.Param, ok bool) {
	at := 0
	for _, size := range d.sizes {
		at = (at + size - 1) &^ (size - 1)
		if at+size > len(packed) {
			return nil, false
		}
		bits := uint64(0)
		for k := size - 1; k >= 0; k-- {
			bits = bits<<8 | uint64(packed[at+k])
		}
		params = append(params, gpu.Param{Bits: bits, Bytes: size})
		at += size
	}
	return params, at == len(packed)
}

// translate gives the machine's names of memory for the card's addresses.
func (f *fake) translate(params []gpu.Param) {
	for k, p := range params {
		if p.Bytes == 8 && p.Bits > handleBase && p.Bits <= uint64(f.next) {
			if b, from, ok := f.at(uintptr(p.Bits), 0); ok && from == 0 {
				params[k].Bits = uint64(b.memory)
			} else {
				f.refuse(invalidValue, "parameter %d is %#x, no buffer", k, p.Bits)
			}
		}
	}
}
