package opencl

import (
	"errors"
	"sync"

	"pnode/kernels/native"
)

// ErrNoLibrary says that no OpenCL library could be opened.
var ErrNoLibrary = errors.New("opencl: no OpenCL driver on this machine; for a card of AMD or Intel install that of its maker (Debian, Ubuntu: mesa-opencl-icd, intel-opencl-icd)")

// function is a function of OpenCL 1.2 that the package calls.
type function int

const (
	getPlatformIDs function = iota
	getPlatformInfo
	getDeviceIDs
	getDeviceInfo
	createContext
	releaseContext
	createCommandQueue
	releaseCommandQueue
	createBuffer
	releaseMemObject
	createProgramWithSource
	buildProgram
	getProgramBuildInfo
	releaseProgram
	createKernelsInProgram
	getKernelInfo
	getKernelWorkGroupInfo
	releaseKernel
	setKernelArg
	enqueueNDRangeKernel
	enqueueReadBuffer
	enqueueWriteBuffer
	enqueueFillBuffer
	enqueueMarker
	enqueueBarrier
	waitForEvents
	releaseEvent
	flush
	finish
	functionCount
)

var functionNames = [functionCount]string{
	"clGetPlatformIDs", "clGetPlatformInfo", "clGetDeviceIDs", "clGetDeviceInfo", "clCreateContext", "clReleaseContext",
	"clCreateCommandQueue", "clReleaseCommandQueue", "clCreateBuffer", "clReleaseMemObject", "clCreateProgramWithSource",
	"clBuildProgram", "clGetProgramBuildInfo", "clReleaseProgram", "clCreateKernelsInProgram", "clGetKernelInfo",
	"clGetKernelWorkGroupInfo", "clReleaseKernel", "clSetKernelArg", "clEnqueueNDRangeKernel", "clEnqueueReadBuffer",
	"clEnqueueWriteBuffer", "clEnqueueFillBuffer", "clEnqueueMarkerWithWaitList",
	"clEnqueueBarrierWithWaitList", "clWaitForEvents", "clReleaseEvent", "clFlush", "clFinish",
}

func (f function) String() string { return functionNames[f] }

// library is the address of each function.
type library [functionCount]uintptr

// load opens the library once; it stays open, because drivers do not unload well.
var load = sync.OnceValues(func() (*library, error) {
	var functions []uintptr
	var err error
	guardSignals(func() {
		functions, err = native.Library{
			Files: libraryNames, Functions: functionNames[:], Missing: ErrNoLibrary, Outdated: "opencl: the library is older than OpenCL 1.2",
		}.Open()
	})
	if err != nil {
		return nil, err
	}
	return (*library)(functions), nil
})

// libraryNames are where OpenCL's loader may be: on Linux and the BSDs, on macOS, on Windows.
var libraryNames = []string{"libOpenCL.so.1", "libOpenCL.so", "/System/Library/Frameworks/OpenCL.framework/OpenCL", "OpenCL.dll"}

// call calls a function that returns a status. Pointers among the arguments are converted in
// the call itself, which keeps what they point to alive and in its place.
//
//go:uintptrescapes
func (l *library) call(f function, args ...uintptr) status {
	return status(int32(native.Call(l[f], args...)))
}

// create calls a function that returns a handle; its last argument points to the status.
//
//go:uintptrescapes
func (l *library) create(f function, args ...uintptr) uintptr {
	return native.Call(l[f], args...)
}
