// Package sensors reads how warm the devices of this machine are and how much power they take, where their drivers tell.
//
//   - Device: a device to look at, by its name and its place on the bus.
//   - Reading: what was read of it. What a driver does not tell, or tells out of all bounds, is not there.
//   - Watch: looks again and again, and keeps the newest readings.
//
// Processors, and cards of AMD and Intel, are read in Linux's /sys: hwmon, thermal zones, and the energy counters of RAPL (powercap), which most
// systems let root read alone. Cards of NVIDIA are asked through a function. Node owns a Watch. The package starts no goroutine, and
// imports nothing of the project.
package sensors
