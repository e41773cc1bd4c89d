package cuda

import (
	"errors"
	"sync"

	"pnode/kernels/native"
)

// ErrNoLibrary says that NVIDIA's driver is not installed.
var ErrNoLibrary = errors.New("cuda: no NVIDIA driver on this machine; for a card of NVIDIA install its driver, version 450 or later")

// function is a function of the driver that the package calls.
type function int

const (
	initialize function = iota
	driverGetVersion
	deviceGetCount
	deviceGet
	deviceGetName
	deviceGetAttribute
	deviceTotalMem
	deviceGetPCIBusID
	primaryCtxSetFlags
	primaryCtxRetain
	primaryCtxRelease
	ctxSetCurrent
	memGetInfo
	memAlloc
	memFree
	memHostAlloc
	memFreeHost
	memcpyHtoDAsync
	memcpyDtoHAsync
	memcpyDtoH
	memsetD8Async
	streamCreate
	streamDestroy
	streamSynchronize
	streamWaitEvent
	eventCreate
	eventDestroy
	eventRecord
	eventSynchronize
	eventElapsedTime
	moduleLoadDataEx
	moduleUnload
	moduleGetFunction
	launchKernel
	// Those of graphs came with version 470 (CUDA 11.4), and are done without before.
	streamBeginCapture
	streamEndCapture
	streamGetCaptureInfo
	graphDestroy
	graphInstantiate
	graphExecDestroy
	graphExecKernelNodeSetParams
	graphLaunch
	functionCount
)

// The names with a version are those whose plain ones have 32-bit sizes or older rules.
var functionNames = [functionCount]string{
	"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
	"cuDeviceTotalMem_v2", "cuDeviceGetPCIBusId", "cuDevicePrimaryCtxSetFlags_v2", "cuDevicePrimaryCtxRetain",
	"cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent", "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc",
	"cuMemFreeHost", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoH_v2", "cuMemsetD8Async", "cuStreamCreate",
	"cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamWaitEvent", "cuEventCreate", "cuEventDestroy_v2", "cuEventRecord",
	"cuEventSynchronize", "cuEventElapsedTime", "cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction", "cuLaunchKernel",
	"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuStreamGetCaptureInfo_v2", "cuGraphDestroy", "cuGraphInstantiateWithFlags",
	"cuGraphExecDestroy", "cuGraphExecKernelNodeSetParams", "cuGraphLaunch",
}

func (f function) String() string { return functionNames[f] }

// library is the address of each function.
type library [functionCount]uintptr

// libraryNames are where the driver may be: on Linux, under Linux in Windows, on Windows.
var libraryNames = []string{"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1", "nvcuda.dll"}

// load opens the library and starts the driver, once.
var load = sync.OnceValues(func() (*library, error) { return open(libraryNames) })

func open(names []string) (*library, error) {
	functions, err := native.Library{
		Files: names, Functions: functionNames[:streamBeginCapture], Optional: functionNames[streamBeginCapture:],
		Missing: ErrNoLibrary, Outdated: "cuda: the driver is older than version 450 (CUDA 11): update it",
	}.Open()
	if err != nil {
		return nil, err
	}
	return (*library)(functions), nil
}

// call calls a function. Pointers among the arguments are converted in the call itself, which
// keeps what they point to alive and in its place.
//
//go:uintptrescapes
func (l *library) call(f function, args ...uintptr) result {
	return result(int32(native.Call(l[f], args...)))
}

// check is call with the result as an error.
//
//go:uintptrescapes
func (l *library) check(f function, args ...uintptr) error { return l.call(f, args...).err(f) }

// release gives a handle back, unless it is 0 and was never made.
func (l *library) release(by function, handle uintptr) error {
	if handle == 0 {
		return nil
	}
	return l.check(by, handle)
}
