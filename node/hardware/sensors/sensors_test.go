package sensors

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

// tree returns a /sys of these files.
func tree(files map[string]string) fstest.MapFS {
	t := fstest.MapFS{}
	for name, text := range files {
		t[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return t
}

var start = time.Unix(1e9, 0)

// shown returns a device's reading as text, with "-" for what is not known.
func shown(w *Watch, now time.Time) string {
	number := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(math.Round(*v*100) / 100)
	}
	var all []string
	for _, r := range w.Readings(now) {
		all = append(all, fmt.Sprintf("%s %s %s", r.Device, number(r.Celsius), number(r.Watts)))
	}
	return strings.Join(all, "; ")
}

func watch(files fstest.MapFS, cards []Card, devices ...Device) *Watch {
	return New(Options{Devices: func() []Device { return devices }, Sys: files, Cards: func() []Card { return cards }})
}

var processor = Device{Name: "cpu", Processor: true}

// TestOneLook reads what drivers of each kind tell, and nothing that cannot be.
func TestOneLook(t *testing.T) {
	const pci = "bus/pci/devices/0000:03:00.0/hwmon/hwmon4/"
	card := Device{Name: "opencl:0", PCI: "0000:03:00.0"}
	nvidia := Device{Name: "cuda:0", PCI: "0000:65:00.0", NVIDIA: true}
	for name, tt := range map[string]struct {
		files  map[string]string
		cards  []Card
		device Device
		want   string
	}{
		"Intel's processor": {map[string]string{
			"class/hwmon/hwmon0/name": "nvme", "class/hwmon/hwmon0/temp1_input": "90000",
			"class/hwmon/hwmon1/name": "coretemp", "class/hwmon/hwmon1/temp1_label": "Package id 0", "class/hwmon/hwmon1/temp1_input": "61000",
			"class/hwmon/hwmon1/temp2_label": "Core 0", "class/hwmon/hwmon1/temp2_input": "75000",
			"class/hwmon/hwmon2/name": "coretemp", "class/hwmon/hwmon2/temp1_label": "Package id 1", "class/hwmon/hwmon2/temp1_input": "64500",
		}, nil, processor, "cpu 64.5 -"},
		"AMD's processor": {map[string]string{
			"class/hwmon/hwmon1/name": "k10temp", "class/hwmon/hwmon1/temp1_label": "Tctl", "class/hwmon/hwmon1/temp1_input": "80000",
			"class/hwmon/hwmon1/temp2_label": "Tdie", "class/hwmon/hwmon1/temp2_input": "53125",
		}, nil, processor, "cpu 53.13 -"},
		"thermal zones": {map[string]string{
			"class/thermal/thermal_zone0/type": "acpitz", "class/thermal/thermal_zone0/temp": "99000",
			"class/thermal/thermal_zone1/type": "cpu-thermal", "class/thermal/thermal_zone1/temp": "48312",
		}, nil, processor, "cpu 48.31 -"},
		"a broken sensor": {map[string]string{
			"class/hwmon/hwmon1/name": "k10temp", "class/hwmon/hwmon1/temp1_label": "Tctl", "class/hwmon/hwmon1/temp1_input": "-273150",
			"class/thermal/thermal_zone1/type": "cpu-thermal", "class/thermal/thermal_zone1/temp": "2147483647",
		}, nil, processor, ""},
		"no number":                {map[string]string{pci + "temp1_input": "N/A", pci + "power1_input": strings.Repeat("1", 100)}, nil, card, ""},
		"AMD's card":               {map[string]string{pci + "temp1_label": "edge", pci + "temp1_input": "45000", pci + "temp2_label": "junction", pci + "temp2_input": "60000", pci + "power1_average": "123000000", pci + "power1_input": "9"}, nil, card, "opencl:0 45 123"},
		"Intel's card":             {map[string]string{pci + "temp2_label": "pkg", pci + "temp2_input": "52000", pci + "temp3_label": "vram", pci + "temp3_input": "70000", pci + "energy1_input": "5"}, nil, card, "opencl:0 52 -"},
		"absurd power":             {map[string]string{pci + "temp1_input": "45000", pci + "power1_average": "9000000000000"}, nil, card, "opencl:0 45 -"},
		"no power":                 {map[string]string{pci + "temp1_input": "45000", pci + "power1_average": "0"}, nil, card, "opencl:0 45 -"},
		"a place elsewhere":        {map[string]string{"class/hwmon/hwmon1/temp1_input": "45000"}, nil, Device{Name: "opencl:0", PCI: "../../../class"}, ""},
		"another card":             {map[string]string{pci + "temp1_input": "45000"}, nil, Device{Name: "opencl:1", PCI: "0000:04:00.0"}, ""},
		"no place":                 {nil, nil, Device{Name: "opencl:2"}, ""},
		"NVIDIA's card":            {nil, []Card{{"0000:17:00.0", 20, 1000}, {"0000:65:00.0", 71, 312500}}, nvidia, "cuda:0 71 312.5"},
		"a card that is shy":       {nil, []Card{{"0000:65:00.0", 71, -1}}, nvidia, "cuda:0 71 -"},
		"a card that says nothing": {nil, []Card{{"0000:65:00.0", -1, -1}}, nvidia, ""},
		"an absurd card":           {nil, []Card{{"0000:65:00.0", 100000, math.MaxInt32 * 1000}}, nvidia, ""},
		"no library":               {nil, nil, nvidia, ""},
	} {
		w := watch(tree(tt.files), tt.cards, tt.device)
		w.look(start)
		if got := shown(w, start); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	without := New(Options{Devices: func() []Device { return []Device{processor, card, nvidia} }})
	without.look(start)
	if got := shown(without, start); got != "" {
		t.Errorf("without /sys and library: %q", got)
	}
}

// TestPowerByCounters: what was used between two looks, over the counter's end too; all packages, or nothing.
func TestPowerByCounters(t *testing.T) {
	files := map[string]string{
		"class/powercap/intel-rapl/enabled": "1",
		"class/powercap/intel-rapl:0/name":  "package-0", "class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
		"class/powercap/intel-rapl:0:0/name": "core", "class/powercap/intel-rapl:0:0/energy_uj": "1",
		"class/powercap/intel-rapl:1/name": "package-1", "class/powercap/intel-rapl:1/max_energy_range_uj": "262143328850",
		"class/powercap/intel-rapl:2/name": "psys", "class/powercap/intel-rapl:2/energy_uj": "1",
		"class/powercap/intel-rapl-mmio:0/name": "package-0", "class/powercap/intel-rapl-mmio:0/max_energy_range_uj": "262143328850",
	}
	const pci = "bus/pci/devices/0000:03:00.0/hwmon/hwmon4/energy1_input"
	w := watch(nil, nil, processor, Device{Name: "opencl:0", PCI: "0000:03:00.0"})
	at := start
	look := func(after time.Duration, first, second, card string) string {
		at = at.Add(after)
		files["class/powercap/intel-rapl:0/energy_uj"], files["class/powercap/intel-rapl:1/energy_uj"], files[pci] = first, second, card
		files["class/powercap/intel-rapl-mmio:0/energy_uj"] = first
		w.options.Sys = tree(files)
		w.look(at)
		return shown(w, at)
	}
	for i, tt := range []struct {
		after               time.Duration
		first, second, card string
		want                string
	}{
		{0, "262000000000", "1000000000", "500000000", ""},
		{10 * time.Second, "262100000000", "1500000000", "3000000000", "cpu - 60; opencl:0 - 250"},
		{10 * time.Second, "456671150", "1600000000", "2000000000", "cpu - 60"}, // 500 J over the end; the card's has no end that is known
		{10 * time.Second, "556671150", "", "2000000001", ""},                   // 0.1 µW is none
		{10 * time.Second, "656671150", "1700000000", "4000000000", "opencl:0 - 200"},
		{10 * time.Second, "756671150", "1800000000", "4000000000", "cpu - 20"},
		{2 * time.Minute, "856671150", "1900000000", "9000000000", ""}, // may have begun anew meanwhile
		{0, "856671160", "1900000010", "9000000010", ""},
		{time.Second, "856671160", "1900000010", "-5", ""},
	} {
		if got := look(tt.after, tt.first, tt.second, tt.card); got != tt.want {
			t.Errorf("look %d: %q, want %q", i, got, tt.want)
		}
	}
}

// TestRunLooksAgain: at once and then at each tick, until the end; while a driver hangs nobody waits, and what was read before grows too old.
func TestRunLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		celsius, hangs := 40, make(chan struct{})
		w := New(Options{Devices: func() []Device { return []Device{{Name: "cuda:0", PCI: "0000:65:00.0", NVIDIA: true}} }, Cards: func() []Card {
			if celsius++; celsius == 43 {
				<-hangs
			}
			return []Card{{"0000:65:00.0", celsius, -1}}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.Run(ctx) }()
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := shown(w, time.Now()); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		after(0, "cuda:0 41 -")
		after(Every, "cuda:0 42 -")
		after(Every, "cuda:0 42 -") // it hangs
		after(maxAge, "")
		close(hangs)
		after(0, "cuda:0 44 -") // a tick was waiting
		after(Every, "cuda:0 45 -")
		cancel()
		<-ended
	})
}

// TestRunEndsWhileADriverHangs: else whoever ends the node waits for a card that fell off the bus.
func TestRunEndsWhileADriverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, hangs := 0, make(chan struct{})
		w := New(Options{Devices: func() []Device { return []Device{{Name: "cuda:0", PCI: "0000:65:00.0", NVIDIA: true}} }, Cards: func() []Card {
			looks++
			<-hangs
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.Run(ctx) }()
		time.Sleep(2 * Every)
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("it waits for the driver")
		}
		close(hangs)
		synctest.Wait()
		if looks != 1 {
			t.Errorf("%d looks, want the one that hung: none beside it, and none after the end", looks)
		}
	})
}
