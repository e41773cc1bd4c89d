package devices

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
)

// message is a line of what Examine writes: one of the fields.
type message struct {
	// Begin names the backend or the device that is looked at from now on; Matrix reports that its
	// matrix units are tried.
	Begin   string   `json:"begin,omitempty"`
	Matrix  bool     `json:"matrix_units,omitempty"`
	Device  *Finding `json:"device,omitempty"`
	Missing *Missing `json:"missing,omitempty"`
}

// examiner looks at the devices of the drivers and says what it finds as it goes, so that
// what a driver does to this process leaves it known up to there.
type examiner struct {
	out    *json.Encoder
	names  wanted
	skip   []string
	plain  []string
	cards  map[string]string // the first device that works, by PCI address
	broken error             // of out
}

// Selection chooses the devices that Examine looks at: all, or the ones with these Names, but for the backends
// and devices to Skip; at those in Plain without their matrix units.
type Selection struct{ Names, Skip, Plain []string }

// Examine looks at what the drivers have. It writes for Probe, which runs it in a process of its own.
func Examine(out io.Writer, s Selection) error {
	e := examiner{out: json.NewEncoder(out), names: s.Names, skip: s.Skip, plain: s.Plain, cards: map[string]string{}}
	for _, b := range drivers() {
		if !slices.Contains(s.Skip, b.kind) {
			e.backend(b)
		}
	}
	e.tell(message{Begin: over})
	return e.broken
}

// over begins nothing: all has been looked at.
const over = "over"

func (e *examiner) tell(m message) { e.broken = errors.Join(e.broken, e.out.Encode(m)) }

func (e *examiner) backend(b backend) {
	e.tell(message{Begin: b.kind})
	list, err := b.list()
	if err != nil {
		e.tell(message{Missing: &Missing{Backend: b.kind, Why: err.Error()}})
	}
	for i, f := range list {
		if slices.Contains(e.skip, f.Name) {
			continue
		}
		f.Same = e.cards[f.PCI]
		if f.Problem == "" && e.names.takes(f) {
			f.Plain = slices.Contains(e.plain, f.Name)
			e.tell(message{Begin: f.Name, Matrix: f.Matrix && !f.Plain})
			f = e.try(b, i, f)
		}
		if f.Passed && f.PCI != "" && f.Same == "" {
			e.cards[f.PCI] = f.Name
		}
		e.tell(message{Device: &f})
	}
}

// try opens a device, which tests it, and measures it.
func (e *examiner) try(b backend, index int, f Finding) Finding {
	device, err := b.open(index, f.Plain)
	if err != nil {
		f.Problem = err.Error()
		return f
	}
	if chooser, ok := device.(interface{ Products() string }); ok {
		f.Products = chooser.Products()
	}
	f.Rates, err = Measure(device)
	if err = errors.Join(err, device.Close()); err != nil {
		f.Problem = err.Error()
		return f
	}
	f.Passed = true
	return f
}
