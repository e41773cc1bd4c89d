package nvml

import (
	"errors"

	"pnode/kernels/native"
)

// ErrNoLibrary says that NVIDIA's management library is not installed.
var ErrNoLibrary = errors.New("nvml: no management library of NVIDIA on this machine")

// function is a function of the library that the package calls.
type function int

const (
	initialize function = iota
	shutdown
	driverVersion
	deviceCount
	deviceHandle
	deviceName
	devicePCI
	deviceMemory
	deviceTemperature
	devicePower
	functionCount
)

var functionNames = [functionCount]string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
	"nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage",
}

func (f function) String() string { return functionNames[f] }

// library is the address of each function.
type library [functionCount]uintptr

var libraryNames = []string{"libnvidia-ml.so.1", "libnvidia-ml.so", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "nvml.dll"}

func open(names []string) (*library, error) {
	functions, err := native.Library{
		Files: names, Functions: functionNames[:], Missing: ErrNoLibrary, Outdated: "nvml: the driver is too old: update it",
	}.Open()
	if err != nil {
		return nil, err
	}
	return (*library)(functions), nil
}

// status is the result of a function; 0 is success.
type status int32

const (
	success         status = 0
	notSupported    status = 3
	noPermission    status = 4
	driverNotLoaded status = 9
	cardIsLost      status = 15
	mismatch        status = 18
	unknown         status = 999
)

var statuses = native.Codes[status]{
	notSupported:    {Name: "NVML_ERROR_NOT_SUPPORTED"},
	noPermission:    {Name: "NVML_ERROR_NO_PERMISSION", Remedy: "give the user access to /dev/nvidia*"},
	driverNotLoaded: {Name: "NVML_ERROR_DRIVER_NOT_LOADED", Remedy: "load the kernel module nvidia, or give the container its devices"},
	cardIsLost:      {Name: "NVML_ERROR_GPU_IS_LOST", Remedy: "a card fell off the bus; restart the machine"},
	mismatch:        {Name: "NVML_ERROR_LIB_RM_VERSION_MISMATCH", Remedy: "the driver was updated under a running system; restart the machine"},
	unknown:         {Name: "NVML_ERROR_UNKNOWN"},
}

// check calls a function. Pointers among the arguments are converted in the call itself.
//
//go:uintptrescapes
func (l *library) check(f function, args ...uintptr) error {
	return statuses.Err("nvml", f, status(int32(native.Call(l[f], args...))))
}
