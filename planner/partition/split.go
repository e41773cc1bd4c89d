package partition

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
)

// ErrBadProblem is wrapped by errors about problems that make no sense.
var ErrBadProblem = errors.New("partition: bad problem")

// NoFit names a device that is too small. It is an error.
type NoFit struct {
	// Device holds the layers [First, End) at best and needs NeedBytes for them.
	Device, First, End   int
	NeedBytes, FreeBytes int64
	// Host reports that the host memory of the device is too small.
	Host bool
}

func (e *NoFit) Error() string {
	return fmt.Sprintf("partition: device %d needs %d bytes for layers %d-%d, %d are free", e.Device, e.NeedBytes, e.First, e.End-1, e.FreeBytes)
}

// Problem asks how n devices in the order of the pipeline should share L layers. Sums
// over layers come as prefixes of length L+1: entry l is about the layers before l.
type Problem struct {
	Devices []Device
	// SlotBytes come with each micro-batch in flight whatever the layers are.
	SlotBytes int64
}

// Device is one place of the pipeline.
type Device struct {
	// Before is a prefix: the time of a micro-batch's forward and backward.
	Before []schedule.Nanos
	// Fixed and Saved are prefixes: bytes that a layer takes there once, and per micro-batch
	// in flight.
	Fixed, Saved []int64
	// Boundary is by layer how long that layer's output or its gradient occupies the
	// link to the next device; nil is no time.
	Boundary  []schedule.Nanos
	InFlight  int
	FreeBytes int64
	// Host is a prefix: bytes of a layer in host memory, of which HostBytes are free; nil is none.
	Host      []int64
	HostBytes int64
}

// layers returns how many layers the first device could hold: check wants the same of all.
func (p Problem) layers() int {
	if len(p.Devices) == 0 {
		return 0
	}
	return len(p.Devices[0].Before) - 1
}

func (p Problem) check() error {
	n, layers := len(p.Devices), p.layers()
	if n < 1 || layers < n {
		return fmt.Errorf("%w: %d devices for %d layers, each needs at least one", ErrBadProblem, n, layers)
	}
	for d, dev := range p.Devices {
		if len(dev.Before) != layers+1 || len(dev.Fixed) != layers+1 || len(dev.Saved) != layers+1 || dev.InFlight < 1 ||
			(dev.Boundary != nil && len(dev.Boundary) != layers) || (dev.Host != nil && len(dev.Host) != layers+1) {
			return fmt.Errorf("%w: device %d: %d times, %d and %d sums of bytes and %d of the host, %d boundaries, %d in flight", ErrBadProblem, d, len(dev.Before), len(dev.Fixed), len(dev.Saved), len(dev.Host), len(dev.Boundary), dev.InFlight)
		}
	}
	return nil
}

// NeedBytes returns what layers [first, end) take of device d with as much in flight as it has.
func (p Problem) NeedBytes(d, first, end int) int64 {
	dev := &p.Devices[d]
	return dev.Fixed[end] - dev.Fixed[first] + int64(dev.InFlight)*(dev.Saved[end]-dev.Saved[first]+p.SlotBytes)
}

// fits reports whether device d has the memory for layers [first, end), its own and the host's.
func (p Problem) fits(d, first, end int) bool {
	return p.NeedBytes(d, first, end) <= p.Devices[d].FreeBytes && p.fitsHost(d, first, end)
}

func (p Problem) fitsHost(d, first, end int) bool {
	dev := &p.Devices[d]
	return dev.Host == nil || dev.Host[end]-dev.Host[first] <= dev.HostBytes
}

func (p Problem) time(d, first, end int) schedule.Nanos {
	return p.Devices[d].Before[end] - p.Devices[d].Before[first]
}

// boundary returns how long the link after device d is occupied when d ends before layer end.
func (p Problem) boundary(d, end int) schedule.Nanos {
	if b := p.Devices[d].Boundary; b != nil && d < len(p.Devices)-1 {
		return b[end-1]
	}
	return 0
}

// Split gives each device at least one layer such that everything fits and the period is
// least; among those it takes the least time for a micro-batch to pass all stages, and
// then the fewest layers on the earlier devices, which keep the most activations.
// ends[d] is the layer after device d's last. An error that does not wrap ErrBadProblem
// is a *NoFit.
func Split(p Problem) (ends []int, period schedule.Nanos, err error) {
	if err := p.check(); err != nil {
		return nil, 0, err
	}
	low, high := p.bounds()
	if ok, _ := p.reachable(high); !ok {
		return nil, 0, p.noFit(high)
	}
	for low < high { // no period between the two of a probe has other cuts
		if ok, same := p.reachable(low + (high-low)/2); ok {
			high = max(low, same.least)
		} else {
			low = same.next
		}
	}
	return p.best(low), low, nil
}

// bounds returns periods that no cut beats and none exceeds. Each layer is somewhere, and
// all devices together need the time of all layers, each on its quickest device.
func (p Problem) bounds() (low, high schedule.Nanos) {
	sum := schedule.Nanos(0)
	for l := range p.layers() {
		quickest := p.time(0, l, l+1)
		for d := range p.Devices {
			quickest = min(quickest, p.time(d, l, l+1))
			high = max(high, p.boundary(d, l+1))
		}
		low, sum = max(low, quickest), sum+quickest
	}
	for d := range p.Devices {
		high = max(high, p.time(d, 0, p.layers()))
	}
	return max(low, sum/schedule.Nanos(len(p.Devices))), high
}

// Within returns the cut that Split would choose if the period need not be shorter than
// given: longer periods allow less time for a micro-batch to pass all stages. It returns
// nil when there is none.
func Within(p Problem, period schedule.Nanos) []int {
	if p.check() != nil {
		return nil
	}
	if ok, _ := p.reachable(period); !ok {
		return nil
	}
	return p.best(period)
}

// periods bounds the periods that have the same cuts as one of them: from least on, and less than next.
type periods struct{ least, next schedule.Nanos }

// reachable reports whether some cut has at most that period.
func (p Problem) reachable(period schedule.Nanos) (ok bool, same periods) {
	reach, next := p.start(), make([]bool, p.layers()+1)
	same.next = math.MaxInt64
	for d := range p.Devices {
		p.extend(d, reach, next, period, &same)
		reach, next = next, reach
	}
	return reach[p.layers()], same
}

func (p Problem) start() []bool {
	reach := make([]bool, p.layers()+1)
	reach[0] = true
	return reach
}

// extend fills next with the cuts that can follow device d when reach are those before it. The
// furthest end of a range grows with its start, so one sweep is enough. (Packing each
// device as full as it gets is not exact: it may leave a later, weaker device, which
// must hold one layer, with a layer that is too large for it.) It narrows same to the periods that make no difference.
func (p Problem) extend(d int, reach, next []bool, period schedule.Nanos, same *periods) {
	clear(next)
	limit := p.layers() - (len(p.Devices) - 1 - d) // one layer for each device after d
	dev := &p.Devices[d]
	slots := int64(dev.InFlight)
	end := d // everything up to here has been decided
	for first := d; first < limit; first++ {
		if !reach[first] {
			continue
		}
		end = max(end, first)
		latest := dev.Before[first] + period
		fixed, saved := dev.Fixed[first], dev.Saved[first]-p.SlotBytes
		for end < limit {
			if dev.Before[end+1] > latest {
				same.next = min(same.next, dev.Before[end+1]-dev.Before[first])
				break
			}
			if dev.Fixed[end+1]-fixed+slots*(dev.Saved[end+1]-saved) > dev.FreeBytes || !p.fitsHost(d, first, end+1) {
				break
			}
			end++
			same.least = max(same.least, dev.Before[end]-dev.Before[first])
			if b := p.boundary(d, end); b <= period {
				next[end], same.least = true, max(same.least, b)
			} else {
				same.next = min(same.next, b)
			}
		}
	}
}

// best chooses among the cuts with at most that period.
func (p Problem) best(period schedule.Nanos) []int {
	n, layers := len(p.Devices), p.layers()
	const never = schedule.Nanos(-1)
	// rest[d][x]: the least time for layers x and on from device d on.
	rest, to := make([][]schedule.Nanos, n+1), make([][]int, n)
	times, cuts := make([]schedule.Nanos, (n+1)*(layers+1)), make([]int, n*(layers+1))
	rest[n], times = times[:layers+1], times[layers+1:]
	for x := range layers {
		rest[n][x] = never
	}
	for d := n - 1; d >= 0; d-- {
		rest[d], times = times[:layers+1], times[layers+1:]
		to[d], cuts = cuts[:layers+1], cuts[layers+1:]
		for x := range layers + 1 {
			rest[d][x] = never
		}
		limit := layers - (n - 1 - d) // the devices after d need a layer each
		for x := d; x < limit; x++ {  // those before, too
			for end := x + 1; end <= limit && p.time(d, x, end) <= period && p.fits(d, x, end); end++ {
				if rest[d+1][end] == never || p.boundary(d, end) > period {
					continue
				}
				if sum := p.time(d, x, end) + rest[d+1][end]; rest[d][x] == never || sum < rest[d][x] {
					rest[d][x], to[d][x] = sum, end
				}
			}
		}
	}
	ends := make([]int, n)
	x := 0
	for d := range ends {
		x = to[d][x]
		ends[d] = x
	}
	return ends
}

// noFit names the device at which the layers that are left do not fit.
func (p Problem) noFit(period schedule.Nanos) error {
	reach, next, last := p.start(), p.start(), len(p.Devices)-1
	for d := range p.Devices {
		first := 0 // the furthest that the devices before d come, d itself not counted
		for x := range p.layers() {
			if reach[x] {
				first = x
			}
		}
		end := first + 1
		if d == last {
			end = p.layers()
		}
		p.extend(d, reach, next, period, &periods{})
		reach, next = next, reach
		if d == last || !slices.Contains(reach, true) {
			return p.lack(d, first, end)
		}
	}
	panic("partition: unreachable: there is a last device")
}

// lack says which memory of device d is too small for layers [first, end).
func (p Problem) lack(d, first, end int) *NoFit {
	dev, no := p.Devices[d], &NoFit{Device: d, First: first, End: end}
	if no.NeedBytes, no.FreeBytes = p.NeedBytes(d, first, end), dev.FreeBytes; no.NeedBytes <= no.FreeBytes && !p.fitsHost(d, first, end) {
		no.NeedBytes, no.FreeBytes, no.Host = dev.Host[end]-dev.Host[first], dev.HostBytes, true
	}
	return no
}
