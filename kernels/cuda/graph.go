package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// graphs holds a stream's segments that came again: the driver gets a graph at once, where
// it would get hundreds of launches. Whatever of it the driver refuses, launches go one by one from
// then on.
type graphs struct {
	driver *driver
	off    bool
	known  map[uint64]*graph // by the key of segments; without exec for one that came once
	issues int               // of all graphs
	turn   int               // counts segments
	freed  int64             // as the driver counted when all of these were made
}

// graph is a segment in the driver.
type graph struct {
	handle, exec uintptr
	nodes        []uintptr // of each issue, 0 for a product
	issues       []issue   // as exec has them
	turn         int       // when it was last used
}

// A graph of few launches gains nothing, and is not made; the driver keeps so many launches in
// graphs, and keys are remembered.
const (
	minIssues      = 8
	maxGraphIssues = 1 << 14
	maxKnown       = 1 << 10
)

// run has the stream's segment run as a graph; done is false if there is none. The second time that
// a segment comes, one is made: what comes once is not worth it, and libraries have loaded then what
// they need.
func (g *graphs) run(s *stream) (done bool, err error) {
	issues := s.segment.issues
	if g.off || len(issues) < minIssues {
		return false, nil
	}
	g.turn++
	if freed := g.driver.freed.Load(); freed != g.freed {
		if err := g.drop(g.driver.lib); err != nil {
			return false, err
		}
		g.freed = freed
	}
	found := g.known[s.segment.key]
	if found == nil {
		g.known[s.segment.key] = &graph{turn: g.turn}
		if len(g.known) > maxKnown {
			err = g.forget()
		}
		return false, err
	}
	found.turn = g.turn
	switch {
	case found.exec == 0:
		if err = g.make(s, found); err != nil {
			break
		}
		err = found.launch(s)
	case found.like(issues):
		if err = found.update(s); err == nil {
			err = found.launch(s)
		}
	default:
		return false, nil
	}
	if err == nil {
		return true, nil
	}
	// What is wrong with the card itself comes out of the launches, too.
	g.off = true
	return false, g.drop(g.driver.lib)
}

// forget drops what was not used for the longest time.
func (g *graphs) forget() error {
	oldest, first := uint64(0), g.turn
	for key, k := range g.known { // no two have one turn
		if k.turn <= first {
			oldest, first = key, k.turn
		}
	}
	k := g.known[oldest]
	delete(g.known, oldest)
	g.issues -= len(k.issues)
	return k.destroy(g.driver.lib)
}

// make captures the stream's segment, which so is not run, as a graph.
func (g *graphs) make(s *stream, k *graph) error {
	for g.issues+len(s.segment.issues) > maxGraphIssues {
		if err := g.forget(); err != nil {
			return err
		}
	}
	lib := g.driver.lib
	const threadLocal = 1 // other threads may do what a capture may not
	if err := lib.check(streamBeginCapture, s.handle, threadLocal); err != nil {
		return err
	}
	captured := k.capture(s)
	if err := errors.Join(captured, lib.check(streamEndCapture, s.handle, uintptr(unsafe.Pointer(&k.handle)))); err != nil {
		return err
	}
	k.issues = slices.Clone(s.segment.issues)
	for n := range k.issues {
		k.issues[n].params = slices.Clone(k.issues[n].params)
	}
	g.issues += len(k.issues)
	return lib.check(graphInstantiate, uintptr(unsafe.Pointer(&k.exec)), k.handle, 0)
}

// capture enqueues a segment that is being captured, and asks for the node of each launch.
func (k *graph) capture(s *stream) error {
	k.nodes = make([]uintptr, len(s.segment.issues))
	for n := range s.segment.issues {
		i := &s.segment.issues[n]
		if err := s.enqueue(i); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
		if i.product != nil {
			continue
		}
		var err error
		if k.nodes[n], err = s.captured(); err != nil {
			return err
		}
	}
	return nil
}

// captured is the node of what was enqueued last: the one that the next would depend on.
func (s *stream) captured() (uintptr, error) {
	const active = 1
	var status int32
	var id, graph, count uintptr
	var nodes *uintptr
	err := s.driver.lib.check(streamGetCaptureInfo, s.handle, uintptr(unsafe.Pointer(&status)), uintptr(unsafe.Pointer(&id)),
		uintptr(unsafe.Pointer(&graph)), uintptr(unsafe.Pointer(&nodes)), uintptr(unsafe.Pointer(&count)))
	if err != nil {
		return 0, err
	}
	if status != active || count != 1 {
		return 0, fmt.Errorf("cuda: a capture has state %d and %d ends", status, count)
	}
	return *nodes, nil
}

// like reports whether the graph can be made to run these issues: they differ in parameters of kernels at most.
func (k *graph) like(issues []issue) bool {
	if len(k.issues) != len(issues) {
		return false
	}
	for n := range issues {
		was, i := &k.issues[n], &issues[n]
		if was.kernel != i.kernel || was.grid != i.grid || was.product != i.product || was.args != i.args || len(was.params) != len(i.params) {
			return false
		}
	}
	return true
}

// kernelNodeParams is CUDA_KERNEL_NODE_PARAMS.
type kernelNodeParams struct {
	kernel uintptr
	grid   [6]uint32
	shared uint32
	params uintptr
	extra  unsafe.Pointer
}

// update gives the graph the parameters of the stream's segment that have changed.
func (k *graph) update(s *stream) error {
	for n := range s.segment.issues {
		was, i := &k.issues[n], &s.segment.issues[n]
		if bytes.Equal(was.params, i.params) {
			continue
		}
		s.pass(i)
		node := kernelNodeParams{kernel: i.kernel, grid: i.grid, extra: unsafe.Pointer(&s.extra)}
		if err := s.driver.lib.check(graphExecKernelNodeSetParams, k.exec, k.nodes[n], uintptr(unsafe.Pointer(&node))); err != nil {
			return err
		}
		copy(was.params, i.params)
	}
	return nil
}

func (k *graph) launch(s *stream) error { return s.driver.lib.check(graphLaunch, k.exec, s.handle) }

// destroy gives a graph back; one that runs ends first.
func (k *graph) destroy(lib *library) error {
	err := errors.Join(lib.release(graphExecDestroy, k.exec), lib.release(graphDestroy, k.handle))
	k.exec, k.handle = 0, 0
	return err
}

// drop gives all graphs back.
func (g *graphs) drop(lib *library) error {
	var errs []error
	for _, k := range g.known { // in any order
		errs = append(errs, k.destroy(lib))
	}
	clear(g.known)
	g.issues = 0
	return errors.Join(errs...)
}
