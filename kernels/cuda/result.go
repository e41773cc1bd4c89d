package cuda

import (
	"fmt"

	"pnode/kernels"
)

// result is what a function of the driver returns; 0 is success.
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

var resultNames = map[result]string{
	invalidValue:        "CUDA_ERROR_INVALID_VALUE",
	outOfMemory:         "CUDA_ERROR_OUT_OF_MEMORY",
	notInitialized:      "CUDA_ERROR_NOT_INITIALIZED",
	deinitialized:       "CUDA_ERROR_DEINITIALIZED",
	stubLibrary:         "CUDA_ERROR_STUB_LIBRARY",
	deviceUnavailable:   "CUDA_ERROR_DEVICE_UNAVAILABLE",
	noDevice:            "CUDA_ERROR_NO_DEVICE",
	invalidImage:        "CUDA_ERROR_INVALID_IMAGE",
	invalidContext:      "CUDA_ERROR_INVALID_CONTEXT",
	noBinaryForGPU:      "CUDA_ERROR_NO_BINARY_FOR_GPU",
	eccUncorrectable:    "CUDA_ERROR_ECC_UNCORRECTABLE",
	invalidPTX:          "CUDA_ERROR_INVALID_PTX",
	jitCompilerNotFound: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
	unsupportedPTX:      "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
	invalidHandle:       "CUDA_ERROR_INVALID_HANDLE",
	notFound:            "CUDA_ERROR_NOT_FOUND",
	illegalAddress:      "CUDA_ERROR_ILLEGAL_ADDRESS",
	launchOutOfRes:      "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
	launchTimeout:       "CUDA_ERROR_LAUNCH_TIMEOUT",
	primaryCtxActive:    "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
	contextIsDestroyed:  "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	hardwareStackError:  "CUDA_ERROR_HARDWARE_STACK_ERROR",
	illegalInstruction:  "CUDA_ERROR_ILLEGAL_INSTRUCTION",
	misalignedAddress:   "CUDA_ERROR_MISALIGNED_ADDRESS",
	invalidAddressSpace: "CUDA_ERROR_INVALID_ADDRESS_SPACE",
	invalidPC:           "CUDA_ERROR_INVALID_PC",
	launchFailed:        "CUDA_ERROR_LAUNCH_FAILED",
	systemNotReady:      "CUDA_ERROR_SYSTEM_NOT_READY",
	driverMismatch:      "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
	unknownError:        "CUDA_ERROR_UNKNOWN",
}

// remedies are what a user can do.
var remedies = map[result]string{
	unsupportedPTX:      "the driver is older than the kernels: update it",
	jitCompilerNotFound: "the driver's compiler (libnvidia-ptxjitcompiler) is missing: install it, or give it to the container",
	driverMismatch:      "the driver was updated under a running system: restart the machine",
	systemNotReady:      "the driver's services (fabric manager) are not up",
	unknownError:        "often /dev/nvidia-uvm is missing or not readable",
	stubLibrary:         "the libcuda that was found is the stub of a toolkit, not a driver: take it from LD_LIBRARY_PATH",
	launchTimeout:       "a display's watchdog ended a kernel",
}

func (r result) String() string {
	if name := resultNames[r]; name != "" {
		return fmt.Sprintf("%s (%d)", name, int32(r))
	}
	return fmt.Sprintf("CUDA error %d", int32(r))
}

// lost are the errors after which nothing of the context can be used any more.
var lost = map[result]bool{
	deinitialized: true, deviceUnavailable: true, invalidContext: true, eccUncorrectable: true, illegalAddress: true,
	launchTimeout: true, contextIsDestroyed: true, hardwareStackError: true, illegalInstruction: true,
	misalignedAddress: true, invalidAddressSpace: true, invalidPC: true, launchFailed: true, unknownError: true,
}

// err says which function failed, and what can be done. It wraps kernels.ErrOutOfMemory and
// kernels.ErrLost where the result means that. The error of a kernel comes out of a later call.
func (r result) err(f function) error {
	if r == success {
		return nil
	}
	text := fmt.Sprintf("cuda: %v: %v", f, r)
	if remedy := remedies[r]; remedy != "" {
		text += " (" + remedy + ")"
	}
	switch {
	case r == outOfMemory:
		return fmt.Errorf("%w: %s", kernels.ErrOutOfMemory, text)
	case lost[r]:
		return fmt.Errorf("%w: %s", kernels.ErrLost, text)
	default:
		return fmt.Errorf("%s", text)
	}
}
