package cuda

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"pnode/kernels/gpu"
	"pnode/kernels/native"
)

// fakeLibrary are entry points that call the active fake.
var fakeLibrary = sync.OnceValue(func() *library {
	l := &library{}
	for fn, f := range fakeCalls {
		l[fn] = native.Callback(f)
	}
	return l
})

// locked runs an entry point of the active fake.
func locked(fn function, do func(f *fake) result) uintptr {
	f := active
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.begin(fn); r != success {
		return uintptr(r)
	}
	return uintptr(do(f))
}

func put[T any](to *T, value T) result {
	*to = value
	return success
}

func text(to *byte, room uintptr, value string) result {
	copy(unsafe.Slice(to, room-1), value)
	return success
}

// fakeCalls are the functions as C declares them.
var fakeCalls = map[function]any{
	initialize: func(flags uintptr) uintptr {
		return locked(initialize, func(f *fake) result {
			if f.cards == 0 {
				return noDevice
			}
			return success
		})
	},
	driverGetVersion: func(version *int32) uintptr {
		return locked(driverGetVersion, func(*fake) result { return put(version, 12040) })
	},
	deviceGetCount: func(count *int32) uintptr {
		return locked(deviceGetCount, func(f *fake) result { return put(count, int32(f.cards)) })
	},
	deviceGet: func(device *int32, index uintptr) uintptr {
		return locked(deviceGet, func(*fake) result { return put(device, int32(index)) })
	},
	deviceGetName: func(to *byte, room, device uintptr) uintptr {
		return locked(deviceGetName, func(*fake) result { return text(to, room, fmt.Sprintf("Imaginary %d", device)) })
	},
	deviceGetAttribute: func(value *int32, attribute, device uintptr) uintptr {
		return locked(deviceGetAttribute, func(f *fake) result {
			known := map[uintptr]Capability{attributeMajor: f.compute / 10, attributeMinor: f.compute % 10, attributeMultiprocessors: 7}
			return put(value, int32(known[attribute]))
		})
	},
	deviceTotalMem: func(bytes *uint64, device uintptr) uintptr {
		return locked(deviceTotalMem, func(*fake) result { return put(bytes, 1<<30) })
	},
	deviceGetPCIBusID: func(to *byte, room, device uintptr) uintptr {
		return locked(deviceGetPCIBusID, func(*fake) result { return text(to, room, fmt.Sprintf("0000:A%d:00.0", device)) })
	},
	primaryCtxSetFlags: func(device, flags uintptr) uintptr {
		return locked(primaryCtxSetFlags, func(*fake) result { return success })
	},
	primaryCtxRetain: func(context *uintptr, device uintptr) uintptr {
		return locked(primaryCtxRetain, func(f *fake) result {
			f.retained[contextBase+device]++
			return put(context, contextBase+device)
		})
	},
	primaryCtxRelease: func(device uintptr) uintptr {
		return locked(primaryCtxRelease, func(f *fake) result {
			if f.retained[contextBase+device]--; f.retained[contextBase+device] < 0 {
				return f.refuse(invalidContext, "a context is released twice")
			}
			return success
		})
	},
	ctxSetCurrent: func(context uintptr) uintptr {
		return locked(ctxSetCurrent, func(f *fake) result {
			f.current[threadID()] = context
			return success
		})
	},
	memGetInfo: func(free, total *uint64) uintptr {
		return locked(memGetInfo, func(*fake) result {
			*free = 1 << 29
			return put(total, 1<<30)
		})
	},
	memAlloc:        func(address *uintptr, bytes uintptr) uintptr { return locked(memAlloc, alloc(address, bytes)) },
	memFree:         func(address uintptr) uintptr { return locked(memFree, free(address)) },
	memHostAlloc:    hostAlloc,
	memFreeHost:     hostFree,
	memcpyHtoDAsync: upload,
	memcpyDtoHAsync: download,
	memsetD8Async:   clearMemory,
	streamCreate: func(stream *uintptr, flags uintptr) uintptr {
		return locked(streamCreate, func(f *fake) result {
			*stream = f.handle()
			f.streams[*stream] = nil
			return success
		})
	},
	streamDestroy: func(stream uintptr) uintptr {
		return locked(streamDestroy, func(f *fake) result {
			if _, ok := f.streams[stream]; !ok {
				return f.refuse(invalidHandle, "no stream %#x to destroy", stream)
			}
			delete(f.streams, stream)
			return success
		})
	},
	streamSynchronize: func(stream uintptr) uintptr {
		return locked(streamSynchronize, func(f *fake) result { return f.drain(stream, nil) })
	},
	streamWaitEvent:   awaitEvent,
	eventCreate:       createEvent,
	eventDestroy:      destroyEvent,
	eventRecord:       recordEvent,
	eventSynchronize:  reachEvent,
	eventElapsedTime:  elapsed,
	memcpyDtoH:        peek,
	moduleLoadDataEx:  loadPTX,
	moduleUnload:      unloadModule,
	moduleGetFunction: findFunction,
	launchKernel:      launch,

	streamBeginCapture:           beginCapture,
	streamEndCapture:             endCapture,
	streamGetCaptureInfo:         captureInfo,
	graphDestroy:                 destroyGraph(graphDestroy),
	graphExecDestroy:             destroyGraph(graphExecDestroy),
	graphInstantiate:             instantiate,
	graphExecKernelNodeSetParams: setNodeParams,
	graphLaunch:                  launchGraph,
}

func alloc(address *uintptr, bytes uintptr) func(f *fake) result {
	return func(f *fake) result {
		memory, err := f.machine.Alloc(int(bytes))
		if err != nil {
			return outOfMemory
		}
		dirt := slices.Repeat([]byte{0xa5}, int(min(bytes, 1<<16)))
		for _, at := range []int{0, int(bytes) - len(dirt)} {
			if err := f.work.Write(memory, at, dirt); err != nil {
				return f.refuse(unknownError, "%v", err)
			}
		}
		*address = f.handle()
		f.blocks[*address] = block{memory, bytes}
		return f.drain(0, nil)
	}
}

// free waits for all streams like the driver.
func free(address uintptr) func(f *fake) result {
	return func(f *fake) result {
		b, ok := f.blocks[address]
		if !ok {
			return f.refuse(invalidValue, "memory %#x is not there to free", address)
		}
		for _, stream := range slices.Sorted(maps.Keys(f.streams)) {
			if r := f.drain(stream, nil); r != success {
				return r
			}
		}
		delete(f.blocks, address)
		if err := f.machine.Free(b.memory); err != nil {
			return f.refuse(unknownError, "%v", err)
		}
		return success
	}
}

func hostAlloc(to *unsafe.Pointer, bytes, flags uintptr) uintptr {
	return locked(memHostAlloc, func(f *fake) result {
		memory := make([]byte, bytes)
		*to = unsafe.Pointer(unsafe.SliceData(memory))
		f.host[uintptr(*to)] = memory
		return success
	})
}

func hostFree(address uintptr) uintptr {
	return locked(memFreeHost, func(f *fake) result {
		if f.host[address] == nil {
			return f.refuse(invalidValue, "host memory is not there to free")
		}
		delete(f.host, address)
		return success
	})
}

// locate gives the page-locked host memory of a copy; any other would make the copy wait.
func (f *fake) locate(host, bytes uintptr) []byte {
	for start, memory := range f.host {
		if host >= start && host+bytes <= start+uintptr(len(memory)) {
			return memory[host-start:][:bytes]
		}
	}
	f.refuse(invalidValue, "a copy of %d bytes uses host memory that is not page-locked", bytes)
	return nil
}

func upload(to, from, bytes, stream uintptr) uintptr {
	return locked(memcpyHtoDAsync, func(f *fake) result {
		b, at, ok := f.at(to, bytes)
		host := f.locate(from, bytes)
		if !ok || host == nil {
			return invalidValue
		}
		return f.enqueue(stream, func() error { return f.work.Write(b.memory, at, host) })
	})
}

func download(to, from, bytes, stream uintptr) uintptr {
	return locked(memcpyDtoHAsync, func(f *fake) result {
		b, at, ok := f.at(from, bytes)
		host := f.locate(to, bytes)
		if !ok || host == nil {
			return invalidValue
		}
		return f.enqueue(stream, func() error { return f.work.Read(host, b.memory, at) })
	})
}

func clearMemory(address, value, bytes, stream uintptr) uintptr {
	return locked(memsetD8Async, func(f *fake) result {
		b, at, ok := f.at(address, bytes)
		if !ok || value != 0 {
			return invalidValue
		}
		return f.enqueue(stream, func() error { return f.work.Write(b.memory, at, make([]byte, bytes)) })
	})
}

func loadPTX(module *uintptr, image *byte, options uintptr, names *[2]int32, values *jitLog) uintptr {
	return locked(moduleLoadDataEx, func(f *fake) result {
		n := 0
		for *(*byte)(unsafe.Add(unsafe.Pointer(image), n)) != 0 {
			n++
		}
		ptx := string(unsafe.Slice(image, n))
		if options != 2 || *names != [2]int32{jitErrorLogBuffer, jitErrorLogBufferBytes} {
			return f.refuse(invalidValue, "options %v", *names)
		}
		if len(declarations(ptx)) == 0 {
			text((*byte)(values.buffer), values.bytes, "ptxas fatal: no kernels in line 1")
			return invalidPTX
		}
		*module = f.handle()
		f.modules[*module] = declarations(ptx)
		return success
	})
}

func unloadModule(module uintptr) uintptr {
	return locked(moduleUnload, func(f *fake) result {
		if _, ok := f.modules[module]; !ok {
			return f.refuse(invalidHandle, "no module to unload")
		}
		delete(f.modules, module)
		clear(f.functions)
		return success
	})
}

func findFunction(to *uintptr, module uintptr, name *byte) uintptr {
	return locked(moduleGetFunction, func(f *fake) result {
		n := 0
		for *(*byte)(unsafe.Add(unsafe.Pointer(name), n)) != 0 {
			n++
		}
		d, ok := f.modules[module][string(unsafe.Slice(name, n))]
		if !ok {
			return notFound
		}
		*to = f.handle()
		f.functions[*to] = d
		return success
	})
}

// launchExtra is the last argument of cuLaunchKernel.
type launchExtra struct {
	pointer uintptr
	params  *byte
	size    uintptr
	bytes   *uintptr
	end     uintptr
}

func launch(kernel, gx, gy, gz, bx, by, bz, shared, stream, params uintptr, extra *launchExtra) uintptr {
	return locked(launchKernel, func(f *fake) result {
		l, r := f.launch(kernel, [6]uintptr{gx, gy, gz, bx, by, bz}, shared, params, extra)
		if r != success {
			return r
		}
		if g := f.capturing[stream]; g != nil {
			g.nodes = append(g.nodes, fakeNode{f.handle(), nil, l})
			return success
		}
		return f.execute(stream, *l)
	})
}

// execute has a stream do a launch.
func (f *fake) execute(stream uintptr, l gpu.Launch) result {
	f.launches = append(f.launches, l)
	return f.enqueue(stream, func() error { return f.work.Execute([]gpu.Launch{l}) })
}

// launch reads what a launch passes.
func (f *fake) launch(kernel uintptr, grid [6]uintptr, shared, params uintptr, extra *launchExtra) (*gpu.Launch, result) {
	d, ok := f.functions[kernel]
	gx, gy, gz := grid[0], grid[1], grid[2]
	switch {
	case !ok:
		return nil, f.refuse(invalidHandle, "no kernel %#x", kernel)
	case gx < 1 || gy < 1 || gz < 1 || gx >= 1<<31 || gy >= 1<<16 || gz >= 1<<16 || grid[3]*grid[4]*grid[5] != uintptr(gpu.MatrixUnits.Group()):
		return nil, f.refuse(invalidValue, "%s: groups and items %d", d.name, grid)
	case shared != 0 || params != 0 || extra.pointer != 1 || extra.size != 2 || extra.end != 0:
		return nil, f.refuse(invalidValue, "%s: arguments %d %#x %v", d.name, shared, params, *extra)
	}
	values, ok := d.parameters(unsafe.Slice(extra.params, *extra.bytes))
	if !ok {
		return nil, f.refuse(invalidValue, "%s: parameters of %d bytes for %v", d.name, *extra.bytes, d.sizes)
	}
	l := gpu.Launch{Kernel: d.name, Groups: [3]int{int(gx), int(gy), int(gz)}, Items: [2]int{int(grid[3]), int(grid[4])}, Params: values}
	f.translate(l.Params)
	runtime.KeepAlive(extra)
	return &l, success
}
