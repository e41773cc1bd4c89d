package pipeline

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/pipeline/model"
)

func TestNewNamesWhatDoesNotFit(t *testing.T) {
	run := testRun()
	good := cut(run, "1f1b", []int{0})
	for name, change := range map[string]func(*Config){
		"generation 0":     func(c *Config) { c.Plan.Generation = 0 },
		"foreign stage":    func(c *Config) { c.Worker.Peer = "someone" },
		"unknown schedule": func(c *Config) { c.Plan.Schedule = "magic" },
		"no such device":   func(c *Config) { c.Worker.Device = "cuda:7" },
	} {
		cfg := Config{Worker: good.Workers()[0], Run: run, Plan: good}
		change(&cfg)
		if _, err := New(cfg); !errors.Is(err, ErrBadConfig) {
			t.Errorf("%s: got %v, want ErrBadConfig", name, err)
		}
	}
}

// overflowing is a device whose gradients are infinite: GELU's backward says so.
type overflowing struct{ kernels.Device }

type overflowingQueue struct{ kernels.Queue }

func (d overflowing) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return overflowingQueue{q}, err
}

func (q overflowingQueue) Do(c kernels.Call) {
	q.Queue.Do(c)
	if c.Op == kernels.OpGELUBackward {
		q.Queue.Do(kernels.Fill(c.Args[0], c.Dims[0], float32(math.Inf(1))))
	}
}

func TestLossScalingOutOfRangeLeavesTheModelAsItWas(t *testing.T) {
	run := stores(testRun(), model.StorageF16)
	plan := cut(run, "1f1b", []int{0})
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	keeper := &memoryKeeper{}
	w, err := New(usual(Config{
		Worker: plan.Workers()[0], Run: run, Plan: plan, Device: overflowing{device}, Keeper: from{keeper, 0},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	runAll(t, []*Worker{w})
	for layer := range run.Model.Layers() {
		want := make([]float32, run.Model.LayerLen(layer))
		run.Model.InitLayer(layer, run.Train.Seed, want)
		got := LayerParams(run.Model, layer, keeper.layers[run.Train.Steps][layer])
		if !bytes.Equal(got, kernels.Float32Bytes(want)) {
			t.Fatalf("layer %d was changed by updates that were to be skipped", layer)
		}
	}
}
