package opencl

import (
	"fmt"

	"pnode/kernels"
	"pnode/kernels/native"
)

// status is the result of a function of OpenCL; 0 is success.
type status int32

// The codes that mean something to this package.
const (
	success              status = 0
	deviceNotFound       status = -1
	deviceNotAvailable   status = -2
	memAllocationFailure status = -4
	outOfResources       status = -5
	outOfHostMemory      status = -6
	buildProgramFailure  status = -11
	execStatusError      status = -14
	invalidDevice        status = -33
	invalidContext       status = -34
	invalidCommandQueue  status = -36
	invalidBufferSize    status = -61
	platformNotFound     status = -1001
)

var statuses = native.Codes[status]{
	deviceNotFound:       {Name: "CL_DEVICE_NOT_FOUND"},
	deviceNotAvailable:   {Name: "CL_DEVICE_NOT_AVAILABLE", Is: kernels.ErrLost},
	memAllocationFailure: {Name: "CL_MEM_OBJECT_ALLOCATION_FAILURE", Is: kernels.ErrOutOfMemory},
	outOfResources:       {Name: "CL_OUT_OF_RESOURCES"},
	outOfHostMemory:      {Name: "CL_OUT_OF_HOST_MEMORY", Is: kernels.ErrOutOfMemory},
	buildProgramFailure:  {Name: "CL_BUILD_PROGRAM_FAILURE"},
	execStatusError:      {Name: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", Is: kernels.ErrLost},
	invalidDevice:        {Name: "CL_INVALID_DEVICE", Is: kernels.ErrLost},
	invalidContext:       {Name: "CL_INVALID_CONTEXT", Is: kernels.ErrLost},
	invalidCommandQueue:  {Name: "CL_INVALID_COMMAND_QUEUE", Is: kernels.ErrLost},
	invalidBufferSize:    {Name: "CL_INVALID_BUFFER_SIZE", Is: kernels.ErrOutOfMemory},
	platformNotFound:     {Name: "CL_PLATFORM_NOT_FOUND_KHR"},
}

func (s status) String() string { return statuses.Text(s) }

// err says which function failed. It wraps kernels.ErrOutOfMemory and kernels.ErrLost where
// the status means that; outOfResources does by itself mean neither.
func (s status) err(f function) error { return statuses.Err("opencl", f, s) }

// memoryErr is err where memory was asked for: there a lack of resources is one of memory.
func (s status) memoryErr(f function) error {
	if s == outOfResources {
		return fmt.Errorf("%w: opencl: %v: %v", kernels.ErrOutOfMemory, f, s)
	}
	return s.err(f)
}
