package devices

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// maker is a maker of GPUs, by its number on the PCI bus.
type maker struct {
	id, name string
	kinds    []string // of devices that its cards are, in order of preference
	driver   string   // how to get one
}

var makers = []maker{
	{"0x10de", "NVIDIA", []string{"cuda", "opencl"}, "install NVIDIA's driver, which brings libcuda (Debian: nvidia-driver, libcuda1; in a container: NVIDIA's container toolkit and --gpus all)"},
	{"0x1002", "AMD", []string{"opencl"}, "install an OpenCL driver (Debian: mesa-opencl-icd or rocm-opencl-icd; in a container: --device /dev/kfd --device /dev/dri)"},
	{"0x8086", "Intel", []string{"opencl"}, "install an OpenCL driver (Debian: intel-opencl-icd; in a container: --device /dev/dri)"},
}

// machine is where a Linux system tells about its cards.
type machine struct {
	root string
	// open tries whether this user may use a device file.
	open func(path string) error
}

// adviseHere says what is to be done about what this machine lacks.
func adviseHere(r Report) []string {
	if runtime.GOOS != "linux" {
		return nil
	}
	open := func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return machine{"/", open}.advise(r)
}

// advise goes through what a card needs to be found: a driver in the kernel, rights, the
// loader of OpenCL, a driver for it.
func (m machine) advise(r Report) (advice []string) {
	advice = m.rights()
	var seen []string
	for _, address := range m.list("sys/bus/pci/devices") {
		maker, ok := m.card(address)
		if !ok || r.works(address, maker.kinds) {
			continue
		}
		line := fmt.Sprintf("%s's card at %s is not in use: %s", maker.name, address, maker.driver)
		if !slices.Contains(seen, line) {
			seen = append(seen, line)
		}
	}
	advice = append(advice, seen...)
	switch crashed, missing := r.lacks("opencl"); {
	case crashed:
		advice = append(advice, fmt.Sprintf("one of OpenCL's drivers crashes when it is asked for its devices: remove its file from /etc/OpenCL/vendors, which has %s",
			strings.Join(m.list("etc/OpenCL/vendors"), ", ")))
	case missing && len(seen) > 0:
		advice = append(advice, "OpenCL's loader is not here: install libOpenCL.so.1 (Debian: ocl-icd-libopencl1)")
	}
	return advice
}

// card reports whether a device on the bus computes: a display controller (class 3) or an
// accelerator (class 0x12) of a known maker.
func (m machine) card(address string) (maker, bool) {
	class, vendor := m.read("sys/bus/pci/devices", address, "class"), m.read("sys/bus/pci/devices", address, "vendor")
	if !strings.HasPrefix(class, "0x03") && !strings.HasPrefix(class, "0x12") {
		return maker{}, false
	}
	i := slices.IndexFunc(makers, func(m maker) bool { return m.id == vendor })
	if i < 0 {
		return maker{}, false
	}
	return makers[i], true
}

// works reports whether a card was found and works. A driver that does not tell the address of
// its device may have meant this card.
func (r Report) works(address string, kinds []string) bool {
	return slices.ContainsFunc(r.Devices, func(f Finding) bool {
		kind, _, _ := strings.Cut(f.Name, ":")
		return f.Passed && !f.Processor && slices.Contains(kinds, kind) && (f.PCI == "" || f.PCI == address)
	})
}

// lacks reports whether there is nothing of a kind, and whether that is because it crashed.
func (r Report) lacks(kind string) (crashed, missing bool) {
	for _, m := range r.Missing {
		if m.Backend == kind {
			crashed, missing = crashed || m.Crashed, true
		}
	}
	return crashed, missing
}

// rights names device files that this user may not use.
func (m machine) rights() (advice []string) {
	for _, pattern := range []string{"dev/dri/renderD*", "dev/kfd", "dev/nvidia[0-9]*", "dev/nvidiactl"} {
		files, _ := filepath.Glob(filepath.Join(m.root, pattern)) // the patterns are well formed
		for _, file := range files {
			if err := m.open(file); os.IsPermission(err) {
				advice = append(advice, fmt.Sprintf("this user may not open %s: add the user to the group of the file (`ls -l %s`; usually render or video) and log in again", file, file))
			}
		}
	}
	return advice
}

func (m machine) list(dir string) (names []string) {
	entries, _ := os.ReadDir(filepath.Join(m.root, dir)) // none where there is no bus
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// read is the text of a small file, empty where there is none.
func (m machine) read(parts ...string) string {
	text, _ := os.ReadFile(filepath.Join(append([]string{m.root}, parts...)...))
	return strings.TrimSpace(string(text))
}
