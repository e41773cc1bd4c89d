package sensors

import (
	"context"
	"io/fs"
	"slices"
	"sync"
	"time"
)

// Every is the time from one look to the next.
const Every = 10 * time.Second

// maxAge bounds what is reported: a look may hang in a driver.
const maxAge = time.Minute

// What is believed. Sensors that are broken, or not connected, tell numbers far outside.
const (
	coldestMilliCelsius = -40_000
	hottestMilliCelsius = 150_000
	mostMicrowatts      = 5_000_000_000
)

// Device is a device to look at.
type Device struct {
	Name string
	// PCI is its place on the bus, as 0000:03:00.0; empty where it has none.
	PCI string
	// Processor reports that it computes on the processor's cores, NVIDIA that NVIDIA's library knows it.
	Processor, NVIDIA bool
}

// Reading holds what was read of a device; nil is not known.
type Reading struct {
	Device         string
	Celsius, Watts *float64
}

// Card holds what NVIDIA's library says of a card; -1 is not known.
type Card struct {
	PCI        string
	Celsius    int
	Milliwatts int
}

// Options say what to look at.
type Options struct {
	// Devices returns those in use; it is asked at each look.
	Devices func() []Device
	// Sys holds the files of /sys; nil where the system has none.
	Sys fs.FS
	// Cards asks NVIDIA's library; it is called where a device is NVIDIA's.
	Cards func() []Card
}

// Watch keeps the newest readings.
type Watch struct {
	options Options
	energy  map[string]counted // by the look before; look's alone

	mu       sync.Mutex // guards what follows
	readings []Reading
	looked   time.Time
}

// New returns a watch without readings.
func New(o Options) *Watch { return &Watch{options: o, energy: map[string]counted{}} }

// Run looks until ctx is done. It does not wait for a look that hangs in a driver then.
func (w *Watch) Run(ctx context.Context) {
	go w.lookAgain(ctx)
	<-ctx.Done()
}

// lookAgain looks at once and at each tick until ctx is done, one look after the other.
func (w *Watch) lookAgain(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for ctx.Err() == nil {
		w.look(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Readings returns the newest ones, of devices of which something is known; none where they are old. It never waits for a driver.
func (w *Watch) Readings(now time.Time) []Reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.looked) > maxAge {
		return nil
	}
	return slices.Clone(w.readings)
}

// look reads all devices once.
func (w *Watch) look(now time.Time) {
	devices := w.options.Devices()
	var cards []Card
	if w.options.Cards != nil && slices.ContainsFunc(devices, func(d Device) bool { return d.NVIDIA }) {
		cards = w.options.Cards()
	}
	s := system{files: w.options.Sys, before: w.energy, now: now, energy: map[string]counted{}}
	var readings []Reading
	for _, d := range devices {
		r := Reading{Device: d.Name}
		switch {
		case d.NVIDIA:
			r.Celsius, r.Watts = told(cards, d.PCI)
		case d.Processor:
			r.Celsius, r.Watts = s.processor()
		default:
			r.Celsius, r.Watts = s.card(d.PCI)
		}
		if r.Celsius != nil || r.Watts != nil {
			readings = append(readings, r)
		}
	}
	w.energy = s.energy
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readings, w.looked = readings, now
}

// told returns what the library says of the card at a place.
func told(cards []Card, pci string) (c, watts *float64) {
	for _, card := range cards {
		if card.PCI == pci && pci != "" {
			if card.Celsius >= 0 { // -1 is not known
				c = celsius(int64(card.Celsius) * 1000)
			}
			return c, power(int64(card.Milliwatts) * 1000)
		}
	}
	return nil, nil
}

// celsius returns a temperature that can be, nil for any other.
func celsius(milli int64) *float64 {
	if milli < coldestMilliCelsius || milli > hottestMilliCelsius {
		return nil
	}
	value := float64(milli) / 1e3
	return &value
}

// power returns a power in watts that can be, nil for any other. A device that is in use takes some.
func power(microwatts int64) *float64 {
	if microwatts <= 0 || microwatts > mostMicrowatts {
		return nil
	}
	value := float64(microwatts) / 1e6
	return &value
}
