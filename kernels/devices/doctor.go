package devices

import (
	"context"
	"errors"
	"fmt"

	"pnode/kernels/cpu"
)

// Diagnosed is a device, and whether a node would use it.
type Diagnosed struct {
	Finding
	Used bool `json:"used"`
	// Why says why it is not used.
	Why string `json:"why,omitempty"`
}

// Diagnosis describes the devices of a machine.
type Diagnosis struct {
	Devices []Diagnosed `json:"devices"`
	Missing []Missing   `json:"missing,omitempty"`
	// Advice says what could be done about what is missing.
	Advice []string `json:"advice,omitempty"`
	// Drivers reports whether this program can open drivers at all.
	Drivers bool `json:"opens_drivers"`
}

// Diagnose looks at all devices as Open does, and opens none.
func Diagnose(ctx context.Context, o Options) (Diagnosis, error) {
	o = o.resolve()
	d := Diagnosis{Drivers: HasDrivers()}
	report, err := o.Probe.Run(ctx, o.Names)
	if err == nil {
		err = o.knownTo(report)
	}
	if err != nil {
		return d, err
	}
	device, err := cpu.New(cpu.Options{Threads: o.Threads})
	if err != nil {
		return d, err
	}
	processor := findingOfCPU(device)
	processor.Rates, err = Measure(device)
	if err = errors.Join(err, device.Close()); err != nil {
		return d, err
	}
	d.Missing, d.Advice = report.Missing, adviseHere(report)
	fastest := int64(0)
	for _, f := range report.Devices {
		why := unused(f, o.Names)
		if why == "" {
			fastest = max(fastest, f.Rates.MatMulFLOPS)
		}
		d.Devices = append(d.Devices, Diagnosed{f, why == "", why})
	}
	why := ""
	switch {
	case len(o.Names) > 0 && !wanted(o.Names).names(CPU):
		why = notNamed
	case len(o.Names) == 0 && superfluous(processor.Rates, fastest):
		why = fmt.Sprintf("a GPU is %d times as fast, or faster, and needs cores that feed it", superfluousTimes)
	}
	d.Devices = append(d.Devices, Diagnosed{processor, why == "", why})
	return d, nil
}

const notNamed = "it is not among the devices that were named"

// unused says why a device of a driver is not used, empty for one that is.
func unused(f Finding, names wanted) string {
	switch {
	case f.Problem != "":
		return "it does not work"
	case names.takes(f):
		return ""
	case len(names) > 0:
		return notNamed
	case f.Same != "":
		return "it is the same card as " + f.Same
	default:
		return "it computes on the processor's cores, on which cpu is faster; naming it takes it"
	}
}
