package cuda

import (
	"slices"
	"unsafe"

	"pnode/kernels/gpu"
)

// fakeGraph is a captured graph, or an instance of one.
type fakeGraph struct {
	nodes []fakeNode
	ends  []uintptr // the last of them, as the program reads it
	of    uintptr   // the graph of an instance
}

// fakeNode is a launch, or something else that a stream was given.
type fakeNode struct {
	handle uintptr
	do     func() error
	launch *gpu.Launch
}

func beginCapture(stream, mode uintptr) uintptr {
	return locked(streamBeginCapture, func(f *fake) result {
		if _, ok := f.streams[stream]; !ok || f.capturing[stream] != nil || mode != 1 {
			return f.refuse(invalidHandle, "a capture of stream %#x in mode %d", stream, mode)
		}
		f.capturing[stream] = &fakeGraph{}
		return success
	})
}

func endCapture(stream uintptr, graph *uintptr) uintptr {
	return locked(streamEndCapture, func(f *fake) result {
		g := f.capturing[stream]
		if g == nil {
			return f.refuse(invalidHandle, "stream %#x is not captured", stream)
		}
		delete(f.capturing, stream)
		*graph = f.handle()
		f.graphs[*graph] = g
		return success
	})
}

func captureInfo(stream uintptr, status *int32, id, graph *uintptr, ends **uintptr, count *uintptr) uintptr {
	return locked(streamGetCaptureInfo, func(f *fake) result {
		g := f.capturing[stream]
		if g == nil || len(g.nodes) == 0 {
			return f.refuse(invalidHandle, "stream %#x has captured nothing", stream)
		}
		g.ends = []uintptr{g.nodes[len(g.nodes)-1].handle}
		*status, *ends, *count = 1, &g.ends[0], 1
		return success
	})
}

func destroyGraph(fn function) func(graph uintptr) uintptr {
	return func(graph uintptr) uintptr {
		return locked(fn, func(f *fake) result {
			if g := f.graphs[graph]; g == nil || (g.of != 0) != (fn == graphExecDestroy) {
				return f.refuse(invalidHandle, "%v of %#x", fn, graph)
			}
			delete(f.graphs, graph)
			return success
		})
	}
}

func instantiate(exec *uintptr, graph, flags uintptr) uintptr {
	return locked(graphInstantiate, func(f *fake) result {
		g := f.graphs[graph]
		if g == nil || g.of != 0 || flags != 0 {
			return f.refuse(invalidHandle, "an instance of %#x with flags %d", graph, flags)
		}
		*exec = f.handle()
		f.graphs[*exec] = &fakeGraph{nodes: slices.Clone(g.nodes), of: graph}
		return success
	})
}

func setNodeParams(exec, node uintptr, params *kernelNodeParams) uintptr {
	return locked(graphExecKernelNodeSetParams, func(f *fake) result {
		g := f.graphs[exec]
		if g == nil || f.graphs[g.of] == nil {
			return f.refuse(invalidHandle, "no instance %#x of a graph that is there", exec)
		}
		n := slices.IndexFunc(g.nodes, func(n fakeNode) bool { return n.handle == node })
		if n < 0 || g.nodes[n].launch == nil {
			return f.refuse(invalidHandle, "no launch %#x in a graph", node)
		}
		var grid [6]uintptr
		for k, v := range params.grid {
			grid[k] = uintptr(v)
		}
		l, r := f.launch(params.kernel, grid, uintptr(params.shared), params.params, (*launchExtra)(unsafe.Pointer(params.extra)))
		if r != success {
			return r
		}
		if l.Kernel != g.nodes[n].launch.Kernel {
			return f.refuse(invalidValue, "%s takes the place of %s", l.Kernel, g.nodes[n].launch.Kernel)
		}
		if !f.stale {
			g.nodes[n].launch = l
		}
		return success
	})
}

func launchGraph(exec, stream uintptr) uintptr {
	return locked(graphLaunch, func(f *fake) result {
		g := f.graphs[exec]
		if g == nil || g.of == 0 {
			return f.refuse(invalidHandle, "no instance %#x to launch", exec)
		}
		for _, n := range g.nodes {
			r := success
			if n.launch != nil {
				r = f.execute(stream, *n.launch)
			} else {
				r = f.enqueue(stream, n.do)
			}
			if r != success {
				return r
			}
		}
		return success
	})
}
