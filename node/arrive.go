package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"

	"pnode/kernels/cpu"
	"pnode/node/api"
	"pnode/planner"
	"pnode/swarm/consensus"
)

// enrollTimeout bounds getting into the roster.
const enrollTimeout = time.Minute

// run is a node's whole stay: contact makes the first contact with the run, then the node
// measures itself, enters the roster and follows the run until it is over. Cancelling ctx
// before that ends the arrival, afterwards it asks to leave.
func (n *Node) run(ctx context.Context, contact func(context.Context) error) error {
	err := n.arrive(ctx, contact)
	if err == nil {
		leave := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { n.requestLeave() })
		defer stop()
		go func() { <-n.leaveNow; close(leave) }()
		err = n.loop(n.base, leave)
	}
	if err != nil {
		n.hub.Publish(api.Event{Kind: api.KindError, Message: err.Error()})
	}
	return errors.Join(err, n.Close())
}

// requestLeave wakes the run loop, once.
func (n *Node) requestLeave() { n.askLeave.Do(func() { close(n.leaveNow) }) }

func (n *Node) arrive(ctx context.Context, contact func(context.Context) error) error {
	if err := contact(ctx); err != nil {
		return err
	}
	n.enter(Profiling)
	profile, err := n.measure()
	if err != nil {
		return err
	}
	n.profile = profile
	enroll, cancel := context.WithTimeout(ctx, enrollTimeout)
	defer cancel()
	if err := n.propose(enroll, n.joinEntry()); err != nil {
		return fmt.Errorf("node: enter the roster: %w", err)
	}
	n.seated = true
	state, err := n.awaitRun(ctx)
	if err != nil {
		return err
	}
	if n.data, err = n.openText(ctx, state); err != nil {
		return err
	}
	if err := n.propose(ctx, n.activeEntry()); err != nil {
		return fmt.Errorf("node: become active: %w", err)
	}
	n.enter(Waiting)
	return nil
}

// propose commits an entry and waits until this node's own state holds it too, or one
// after it.
func (n *Node) propose(ctx context.Context, e consensus.Entry) error {
	return n.raft.Propose(ctx, e)
}

// enroll enters the roster again after having been counted as gone.
func (n *Node) enroll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, enrollTimeout)
	defer cancel()
	if err := n.propose(ctx, n.joinEntry()); err != nil {
		return err
	}
	return n.propose(ctx, n.activeEntry())
}

func (n *Node) joinEntry() consensus.Entry {
	return consensus.Join{Peer: n.self, Boot: n.boot, Addrs: n.addrs(), Profile: n.profile}
}

func (n *Node) activeEntry() consensus.Entry {
	return consensus.SetMemberState{Peer: n.self, Boot: n.boot, State: consensus.Active}
}

// addrs are this node's addresses, as many as the roster takes.
func (n *Node) addrs() []string {
	addrs := n.swarm.Addrs()
	return addrs[:min(len(addrs), 16)]
}

// measure profiles the devices and the disk.
func (n *Node) measure() (planner.Profile, error) {
	memory, err := mem.VirtualMemory()
	if err != nil {
		return planner.Profile{}, fmt.Errorf("node: free memory: %w", err)
	}
	space, err := disk.Usage(n.dir)
	if err != nil {
		return planner.Profile{}, fmt.Errorf("node: free disk of %s: %w", n.dir, err)
	}
	model := ""
	if d, ok := n.device.(*cpu.Device); ok {
		model = d.Model()
	}
	device, err := calibrate(n.device, model, clampInt64(memory.Available))
	if err != nil {
		return planner.Profile{}, err
	}
	n.log.Info("measured", "device", device.Name, "model", device.Model,
		"matmul_gflops", device.MatMulFLOPS/1e9, "attention_gflops", device.AttentionFLOPS/1e9,
		"memory_gb_per_s", device.MemoryBytesPerS/1e9)
	return planner.Profile{Devices: []planner.DeviceProfile{device}, DiskFreeBytes: clampInt64(space.Free)}, nil
}

func clampInt64(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
