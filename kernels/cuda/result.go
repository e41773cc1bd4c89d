package cuda

import (
	"pnode/kernels"
	"pnode/kernels/native"
)

// result is the result of a function of the driver; 0 is success.
type result int32

// The codes that mean something to this package.
const (
	success             result = 0
	invalidValue        result = 1
	outOfMemory         result = 2
	notInitialized      result = 3
	deinitialized       result = 4
	stubLibrary         result = 34
	deviceUnavailable   result = 46
	noDevice            result = 100
	invalidImage        result = 200
	invalidContext      result = 201
	noBinaryForGPU      result = 209
	eccUncorrectable    result = 214
	invalidPTX          result = 218
	jitCompilerNotFound result = 221
	unsupportedPTX      result = 222
	invalidHandle       result = 400
	notFound            result = 500
	illegalAddress      result = 700
	launchOutOfRes      result = 701
	launchTimeout       result = 702
	primaryCtxActive    result = 708
	contextIsDestroyed  result = 709
	hardwareStackError  result = 714
	illegalInstruction  result = 715
	misalignedAddress   result = 716
	invalidAddressSpace result = 717
	invalidPC           result = 718
	launchFailed        result = 719
	systemNotReady      result = 802
	driverMismatch      result = 803
	unknownError        result = 999
)

var results = native.Codes[result]{
	invalidValue:        {Name: "CUDA_ERROR_INVALID_VALUE"},
	outOfMemory:         {Name: "CUDA_ERROR_OUT_OF_MEMORY", Is: kernels.ErrOutOfMemory},
	notInitialized:      {Name: "CUDA_ERROR_NOT_INITIALIZED"},
	deinitialized:       {Name: "CUDA_ERROR_DEINITIALIZED", Is: kernels.ErrLost},
	stubLibrary:         {Name: "CUDA_ERROR_STUB_LIBRARY", Remedy: "the libcuda that was found is the stub of a toolkit, not a driver: take it from LD_LIBRARY_PATH"},
	deviceUnavailable:   {Name: "CUDA_ERROR_DEVICE_UNAVAILABLE", Is: kernels.ErrLost},
	noDevice:            {Name: "CUDA_ERROR_NO_DEVICE"},
	invalidImage:        {Name: "CUDA_ERROR_INVALID_IMAGE"},
	invalidContext:      {Name: "CUDA_ERROR_INVALID_CONTEXT", Is: kernels.ErrLost},
	noBinaryForGPU:      {Name: "CUDA_ERROR_NO_BINARY_FOR_GPU"},
	eccUncorrectable:    {Name: "CUDA_ERROR_ECC_UNCORRECTABLE", Is: kernels.ErrLost},
	invalidPTX:          {Name: "CUDA_ERROR_INVALID_PTX"},
	jitCompilerNotFound: {Name: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", Remedy: "the driver's compiler (libnvidia-ptxjitcompiler) is missing: install it, or give it to the container"},
	unsupportedPTX:      {Name: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", Remedy: "the driver is older than the kernels: update it"},
	invalidHandle:       {Name: "CUDA_ERROR_INVALID_HANDLE"},
	notFound:            {Name: "CUDA_ERROR_NOT_FOUND"},
	illegalAddress:      {Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Is: kernels.ErrLost},
	launchOutOfRes:      {Name: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
	launchTimeout:       {Name: "CUDA_ERROR_LAUNCH_TIMEOUT", Remedy: "a display's watchdog ended a kernel", Is: kernels.ErrLost},
	primaryCtxActive:    {Name: "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"},
	contextIsDestroyed:  {Name: "CUDA_ERROR_CONTEXT_IS_DESTROYED", Is: kernels.ErrLost},
	hardwareStackError:  {Name: "CUDA_ERROR_HARDWARE_STACK_ERROR", Is: kernels.ErrLost},
	illegalInstruction:  {Name: "CUDA_ERROR_ILLEGAL_INSTRUCTION", Is: kernels.ErrLost},
	misalignedAddress:   {Name: "CUDA_ERROR_MISALIGNED_ADDRESS", Is: kernels.ErrLost},
	invalidAddressSpace: {Name: "CUDA_ERROR_INVALID_ADDRESS_SPACE", Is: kernels.ErrLost},
	invalidPC:           {Name: "CUDA_ERROR_INVALID_PC", Is: kernels.ErrLost},
	launchFailed:        {Name: "CUDA_ERROR_LAUNCH_FAILED", Is: kernels.ErrLost},
	systemNotReady:      {Name: "CUDA_ERROR_SYSTEM_NOT_READY", Remedy: "the driver's services (fabric manager) are not up"},
	driverMismatch:      {Name: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", Remedy: "the driver was updated under a running system: restart the machine"},
	unknownError:        {Name: "CUDA_ERROR_UNKNOWN", Remedy: "often /dev/nvidia-uvm is missing or not readable", Is: kernels.ErrLost},
}

func (r result) String() string { return results.Text(r) }

// err says which function failed, and what can be done. It wraps kernels.ErrOutOfMemory and
// kernels.ErrLost, after which nothing of the context can be used any more. The error of a kernel comes out
// of a later call.
func (r result) err(f function) error { return results.Err("cuda", f, r) }
