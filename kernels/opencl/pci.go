package opencl

import (
	"fmt"
	"unsafe"
)

// Parameters of clGetDeviceInfo that tell where on the bus a device is.
const (
	// devicePCIBusInfo is of cl_khr_pci_bus_info: domain, bus, device, function.
	devicePCIBusInfo = 0x410F
	// devicePCIBusNV and so on are of cl_nv_device_attribute_query. The slot holds the device
	// and, in its last three bits, the function.
	devicePCIBusNV    = 0x4008
	devicePCISlotNV   = 0x4009
	devicePCIDomainNV = 0x400A
	// deviceTopologyAMD is of cl_amd_device_attribute_query.
	deviceTopologyAMD = 0x4037
)

// topologyAMD is cl_device_topology_amd.
type topologyAMD struct {
	kind                  uint32
	_                     [17]byte
	bus, device, function uint8
}

// pci is a device's address, empty where no extension tells it.
func (l *library) pci(id uintptr) string {
	var at [4]uint32
	if l.property(id, devicePCIBusInfo, unsafe.Pointer(&at), unsafe.Sizeof(at)) {
		return pciAddress(at[0], at[1], at[2], at[3])
	}
	var bus, slot, domain uint32
	if l.property(id, devicePCIBusNV, unsafe.Pointer(&bus), unsafe.Sizeof(bus)) &&
		l.property(id, devicePCISlotNV, unsafe.Pointer(&slot), unsafe.Sizeof(slot)) {
		l.property(id, devicePCIDomainNV, unsafe.Pointer(&domain), unsafe.Sizeof(domain)) // 0 where it is not told
		return pciAddress(domain, bus, slot>>3, slot&7)
	}
	const express = 1
	var t topologyAMD
	if l.property(id, deviceTopologyAMD, unsafe.Pointer(&t), unsafe.Sizeof(t)) && t.kind == express {
		return pciAddress(0, uint32(t.bus), uint32(t.device), uint32(t.function))
	}
	return ""
}

func pciAddress(domain, bus, device, function uint32) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}

// property reads a property of a device into a value of so many bytes and reports whether there
// is one.
func (l *library) property(id, parameter uintptr, value unsafe.Pointer, size uintptr) bool {
	return l.call(getDeviceInfo, id, parameter, size, uintptr(value), 0) == success
}
