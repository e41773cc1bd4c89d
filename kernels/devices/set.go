package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// Errors of this package.
var (
	// ErrUnknown: a device that was asked for is not there.
	ErrUnknown = errors.New("devices: no such device")
	// ErrNone: none of the devices that were asked for works and has enough memory.
	ErrNone = errors.New("devices: none that was asked for can be used")
)

// Options say which devices to use.
type Options struct {
	// Names are those to use; none stands for every GPU that works, and the processor unless
	// one of them makes it superfluous.
	Names []string
	// Threads of the processor; 0 is all.
	Threads int
	Probe   Probe
	// Enough says of a driver's device that works why it has too little for the work; nil is that
	// any will do.
	Enough func(Finding) error

	asker string // who gave the names
}

// NamesEnv is the environment variable with the names, divided by commas, that count where
// Options have none: for tests and diagnosis.
const NamesEnv = "PNODE_DEVICES"

// resolve takes the names of the environment where there are none.
func (o Options) resolve() Options {
	o.asker = "devices"
	if text := os.Getenv(NamesEnv); text != "" && len(o.Names) == 0 {
		o.asker, o.Names = NamesEnv, strings.Split(text, ",")
	}
	return o
}

// Device is an opened one and what is known of it.
type Device struct {
	kernels.Device
	Finding
}

// Name is the kernels.Device's, and the finding's.
func (d Device) Name() string { return d.Device.Name() }

// Set holds the devices of a node: at least one, which Close closes.
type Set struct {
	Devices []Device
	// Dropped says of each thing that is not used why.
	Dropped []string
}

// Of is a set of one device, of which no driver tells anything.
func Of(d kernels.Device) *Set {
	return &Set{Devices: []Device{{d, Finding{Name: d.Name(), Passed: true}}}}
}

// Open probes the drivers' devices and opens those that work. A device that was asked for by a
// name that nothing has is an error, which wraps ErrUnknown; one that fails, or has too little, is
// told in Dropped, unless nothing is left: ErrNone.
func Open(ctx context.Context, o Options) (*Set, error) { return o.open(ctx, false) }

// OpenOne opens the one device for work that is not spread: the fastest of those that Open would
// take and that works, so the processor where there is no GPU. The errors are those of Open.
func OpenOne(ctx context.Context, o Options) (*Set, error) { return o.open(ctx, true) }

func (o Options) open(ctx context.Context, one bool) (_ *Set, err error) {
	o, s := o.resolve(), &Set{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	report, err := o.probed(ctx)
	if err != nil {
		return nil, err
	}
	if one {
		slices.SortStableFunc(report.Devices, func(a, b Finding) int { return cmp.Compare(b.Rates.MatMulFLOPS, a.Rates.MatMulFLOPS) })
	}
	for _, f := range report.Devices {
		if enough := one && len(s.Devices) > 0; !enough && wanted(o.Names).takes(f) {
			s.openFound(f, o)
		}
	}
	if wantsCPU := len(o.Names) == 0 || slices.Contains(o.Names, CPU); wantsCPU && !(one && len(s.Devices) > 0) {
		if err := s.openCPU(o); err != nil {
			return nil, err
		}
	}
	if len(s.Devices) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNone, strings.Join(s.Dropped, "; "))
	}
	s.order(o.Names)
	return s, nil
}

// probed returns the devices of the drivers that options ask for.
func (o Options) probed(ctx context.Context) (r Report, err error) {
	if len(o.Names) == 1 && o.Names[0] == CPU { // no driver is asked for
		return r, nil
	}
	if r, err = o.Probe.Run(ctx, o.Names); err == nil {
		err = o.knownTo(r)
	}
	return r, err
}

// knownTo refuses names that nothing has.
func (o Options) knownTo(r Report) error {
	there := []string{CPU}
	for _, f := range r.Devices {
		there = append(there, f.Name)
	}
	for _, n := range o.Names {
		if slices.Contains(there, n) {
			continue
		}
		err := fmt.Errorf("%w: %s names %s, this machine has %s; `pnode doctor` says what is missing", ErrUnknown, o.asker, n, strings.Join(there, ", "))
		for _, m := range r.Missing {
			if strings.HasPrefix(n, m.Backend+":") {
				err = fmt.Errorf("%w (%s)", err, m.Why)
			}
		}
		return err
	}
	return nil
}

// openFound opens a driver's device that works and has enough.
func (s *Set) openFound(f Finding, o Options) {
	var device kernels.Device
	var err error
	if f.Problem != "" {
		err = errors.New(f.Problem)
	} else if o.Enough != nil {
		err = o.Enough(f)
	}
	if err == nil {
		device, err = open(f)
	}
	if err != nil {
		s.Dropped = append(s.Dropped, fmt.Sprintf("goes on without %v: %v", f, err))
		return
	}
	s.Devices = append(s.Devices, Device{device, f})
}

// superfluousTimes the processor's speed a GPU does without it: computing takes cores that
// would have to feed the GPU.
const superfluousTimes = 4

func superfluous(processor Rates, fastestGPU int64) bool {
	return fastestGPU >= superfluousTimes*processor.MatMulFLOPS
}

// openCPU adds the processor; where nobody asked for it, only if it is worth it.
func (s *Set) openCPU(o Options) error {
	device, err := cpu.New(cpu.Options{Threads: o.Threads})
	if err != nil {
		return err
	}
	fastest := int64(0)
	for _, d := range s.Devices {
		fastest = max(fastest, d.Rates.MatMulFLOPS)
	}
	found := findingOfCPU(device)
	if fastest > 0 && len(o.Names) == 0 {
		if found.Rates, err = Measure(device); err != nil {
			return errors.Join(err, device.Close())
		}
		if superfluous(found.Rates, fastest) {
			return device.Close()
		}
	}
	for _, reason := range device.Dropped() {
		s.Dropped = append(s.Dropped, "does not use all of this processor: "+reason)
	}
	s.Devices = append(s.Devices, Device{device, found})
	return nil
}

// findingOfCPU says what is known of the processor without measuring it.
func findingOfCPU(d *cpu.Device) Finding {
	return Finding{Name: CPU, Model: d.Model(), Units: d.Threads(), Shared: true, Features: []string{d.Variant()}, Processor: true, Passed: true}
}

// order puts devices into the order of their names, where there is one.
func (s *Set) order(names []string) {
	if len(names) == 0 {
		return
	}
	slices.SortStableFunc(s.Devices, func(a, b Device) int {
		return cmp.Compare(slices.Index(names, a.Name()), slices.Index(names, b.Name()))
	})
}

// Named is the device with a name, nil where there is none.
func (s *Set) Named(name string) kernels.Device {
	for _, d := range s.Devices {
		if d.Name() == name {
			return d.Device
		}
	}
	return nil
}

// Close closes all devices.
func (s *Set) Close() error {
	var errs []error
	for _, d := range s.Devices {
		errs = append(errs, d.Device.Close())
	}
	return errors.Join(errs...)
}

// Working is the set without the devices that compute nothing any more, and says of each of
// these why. Those are not closed: their drivers are not to be trusted.
func (s *Set) Working() (working *Set, lost []string) {
	working = &Set{}
	for _, d := range s.Devices {
		if err := lives(d.Device); err != nil {
			lost = append(lost, fmt.Sprintf("goes on without %v: %v", d.Finding, err))
			continue
		}
		working.Devices = append(working.Devices, d)
	}
	return working, lost
}

// lives has a device write a number, which it may do without computing (package null).
func lives(d kernels.Device) error {
	buffer, err := d.Alloc(kernels.F32, 1)
	if err != nil {
		return err
	}
	defer buffer.Free()
	q, err := d.NewQueue()
	if err != nil {
		return err
	}
	q.Do(kernels.Fill(kernels.Whole(buffer), 1, 1))
	q.Read(make([]byte, kernels.F32.SizeBytes()), kernels.Whole(buffer))
	return errors.Join(q.Sync(), q.Close())
}
