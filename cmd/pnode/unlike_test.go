package main

import "testing"

// TestUnlikeDevicesOutliveEachOther: a pipeline of an OpenCL device and a slow processor goes on when
// the node of either is killed, and with both when that is started again, with the losses of a
// processor alone, nearly: no sample is lost.
func TestUnlikeDevicesOutliveEachOther(t *testing.T) {
	t.Parallel()
	const steps, tolerance = 400, 1e-3
	device, file := openCLDevice(t), runFile(t, steps)
	first, second := t.TempDir(), t.TempDir()
	slow := deviceFile(t, "2GFLOP/s") // 0.8 s a step
	p := start(t, "train", "--config", file, "--context", "32", "--dir", first, "--json", "--replicas", "1", "--stages", "2",
		"--storage", "f32", "--min-nodes", "2", "--listen", "127.0.0.1:0", "--emulate", slow)
	p.tolerance = tolerance
	invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)
	j := start(t, "join", invite[1], "--dir", second, "--devices", device)
	generation := p.until(7).Generation
	next := func() { // waits for steps of another plan
		t.Helper()
		for p.until(p.last.Step+1).Generation == generation {
			if p.last.Step > steps-20 {
				t.Fatalf("the plan never changes:\n%s\nthe device's node:\n%s", p.stderr, j.stderr)
			}
		}
		generation = p.last.Generation
	}
	j.kill()
	next() // the processor alone
	j = start(t, "join", "--dir", second, "--devices", device)
	next() // both
	j.stderr.await(t, `state: training`)
	p.until(p.last.Step + 3)

	p.kill() // the only one that decides
	before := p.losses
	p = start(t, "train", "--resume", "--dir", first, "--json", "--emulate", slow)
	p.tolerance, p.losses = tolerance, before
	next()
	last := p.until(p.last.Step + 5).Step

	alone := start(t, "train", "--config", file, "--context", "32", "--dir", t.TempDir(), "--json")
	alone.until(last)
	for s := 1; s <= last; s++ {
		if !within(p.losses[s], alone.losses[s], tolerance) {
			t.Errorf("step %d has loss %q, alone %q", s, p.losses[s], alone.losses[s])
		}
	}
}
