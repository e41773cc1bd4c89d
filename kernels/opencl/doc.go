// Package opencl is the backend for whatever has an OpenCL driver: GPUs of AMD, Intel and
// others. The library is opened at run time, without cgo; a machine without it has no such
// devices, and that is no error of the program.
//
// Nouns:
//
//   - library: the functions of OpenCL's loader (libOpenCL) as addresses.
//   - Info: a device that was found, and what it says of itself.
//   - Device: an opened one, with the kernels of package gpu built for it.
//   - driver and stream: the device and a command queue as package gpu uses them.
//   - status: an error code of OpenCL.
//
// Matrix units are taken where a device seems to have some (unit.go), the driver compiles the kernels
// for them and a trial product is right (probe.go); Products says what became of them.
//
// Reading the source: library.go, list.go, device.go, probe.go, driver.go with program.go, stream.go.
//
// Functions are called by package native; host memory that a transfer uses is pinned until the
// next Sync.
//
// Drivers start threads of their own, and some replace the handlers of the process's signals;
// these are put back (signals_linux.go). The package starts no goroutine.
//
// Devices of CPU type are listed as what they are, for tests: package cpu is many times as fast.
package opencl
