package devices

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pnode/kernels/null"
)

func TestOpen(t *testing.T)    { testOpen(t, Open) }
func TestOpenOne(t *testing.T) { testOpen(t, OpenOne) }

// testOpen is of machines on which there is nothing but the processor in the end.
func testOpen(t *testing.T, open func(context.Context, Options) (*Set, error)) {
	for _, c := range []struct {
		name, script string
		names        []string
		want         error
		says         string // in the error or in what was dropped
	}{
		{"no drivers", "", nil, nil, ""},
		{"a driver that crashes", "opencl:77 crashes", nil, nil, "goes on without opencl:77: the driver ended its process"},
		{"a device that goes away", "opencl:77 passes", nil, nil, "goes on without opencl:77"},
		{"a name that nothing has", "opencl:77 fails", []string{"opencl:78", CPU}, ErrUnknown, "this machine has cpu, opencl:77"},
		{"a driver that is not here", "opencl is missing", []string{"opencl:0"}, ErrUnknown, "(no library)"},
		{"a named one that fails", "opencl:77 fails", []string{"opencl:77", CPU}, nil, "goes on without opencl:77: computes wrong"},
		{"nothing is left", "opencl:77 fails", []string{"opencl:77"}, ErrNone, "computes wrong"},
		{"too little of a card", "opencl:77 is full", nil, nil, "goes on without opencl:77: has nothing free"},
		{"too little of a named card", "opencl:77 is full", []string{"opencl:77", CPU}, nil, "goes on without opencl:77: has nothing free"},
		{"too little of the only card", "opencl:77 is full", []string{"opencl:77"}, ErrNone, "opencl:77: has nothing free"},
		{"the processor alone", "opencl:77 crashes", []string{CPU}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(NamesEnv, "")
			if c.script != "" && !HasDrivers() {
				t.Skip("this program opens no drivers")
			}
			o := Options{Names: c.names, Threads: 1, Enough: func(f Finding) error {
				if f.FreeBytes == fullBytes {
					return errors.New("has nothing free")
				}
				return nil
			}}
			if c.script != "" {
				t.Setenv(scriptVariable, c.script)
				o.Probe = Probe{testProgram}
			}
			s, err := open(t.Context(), o)
			if !errors.Is(err, c.want) {
				t.Fatalf("error is %v, want %v", err, c.want)
			}
			if c.want != nil {
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error lacks %q: %v", c.says, err)
				}
				return
			}
			defer s.Close()
			if dropped := strings.Join(s.Dropped, "\n"); !strings.Contains(dropped, c.says) || c.says == "" && dropped != "" {
				t.Errorf("dropped %q, want %q", dropped, c.says)
			}
			if len(s.Devices) != 1 || s.Named(CPU) == nil || s.Named("cuda:0") != nil {
				t.Errorf("devices: %v", s.Devices)
			}
		})
	}
}

// TestNamesOfTheEnvironment count where no others are given.
func TestNamesOfTheEnvironment(t *testing.T) {
	t.Setenv(NamesEnv, "cpu,opencl:78")
	if _, err := Open(t.Context(), Options{Threads: 1}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), NamesEnv+" names opencl:78") {
		t.Errorf("error is %v, want the name that nothing has, and who gave it", err)
	}
	s, err := Open(t.Context(), Options{Threads: 1, Names: []string{CPU}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhichAreUsed(t *testing.T) {
	gpu, other := Finding{Name: "opencl:0", Passed: true}, Finding{Name: "opencl:1", Same: "opencl:0", Passed: true}
	pocl, broken := Finding{Name: "opencl:2", Processor: true}, Finding{Name: "opencl:3", Problem: "crashed"}
	for _, c := range []struct {
		names []string
		used  string
	}{
		{nil, "opencl:0"},
		{[]string{"opencl:1", "opencl:2", "opencl:3"}, "opencl:1 opencl:2"},
	} {
		var used []string
		for _, f := range []Finding{gpu, other, pocl, broken} {
			if unused(f, c.names) == "" {
				used = append(used, f.Name)
			}
		}
		if got := strings.Join(used, " "); got != c.used {
			t.Errorf("of names %v %s is used, want %s", c.names, got, c.used)
		}
	}
}

// TestTheProcessorBesideGPUs: one that is four times as fast makes it superfluous.
func TestTheProcessorBesideGPUs(t *testing.T) {
	processor := Rates{MatMulFLOPS: 100}
	if superfluous(processor, 399) || !superfluous(processor, 400) || superfluous(processor, 0) {
		t.Error("the processor is dropped at another speed than 4 times its own")
	}
}

func TestOrderOfNames(t *testing.T) {
	s := &Set{Devices: []Device{{null.New(), Finding{}}, Of(renamed{null.New(), "b"}).Devices[0], Of(renamed{null.New(), "a"}).Devices[0]}}
	s.order([]string{"a", null.New().Name(), "b"})
	var got []string
	for _, d := range s.Devices {
		got = append(got, d.Name())
	}
	if want := "a " + null.New().Name() + " b"; strings.Join(got, " ") != want {
		t.Errorf("order %v, want %s", got, want)
	}
}

type renamed struct {
	*null.Device
	name string
}

func (r renamed) Name() string { return r.name }

// TestOpenHere opens by name alone.
func TestOpenHere(t *testing.T) {
	d, err := OpenHere(Finding{Name: CPU}, 1)
	if err != nil || d.Name() != CPU {
		t.Fatalf("%v, %v", d, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if d, err := OpenHere(Finding{Name: "abacus:0"}, 1); d != nil || !errors.Is(err, errNoBackend) {
		t.Errorf("%v, %v", d, err)
	}
}
