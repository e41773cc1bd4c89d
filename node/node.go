package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"pnode/node/leader"

	"golang.org/x/sync/errgroup"

	"pnode/checkpoint"
	"pnode/kernels/devices"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/dataset"
	"pnode/node/gossip"
	"pnode/node/hardware"
	"pnode/node/monitor"
	"pnode/pipeline/link"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// Output is where a node shows itself to whoever started it, and what it needs of them.
type Output struct {
	// Events gets everything that happens, one call at a time.
	Events func(api.Event)
	// Notice gets lines for people: the invite, what the text is.
	Notice func(string)
	Log    *slog.Logger
	// Probe looks at the devices of this machine's drivers; without it the node computes on
	// the processor alone.
	Probe devices.Probe
}

// tellFolder says where the run is and how to look on, once it is known that there is one.
func (o Output) tellFolder(dir string) {
	o.Notice("run folder: " + dir)
	o.Notice("live page: pnode watch --dir " + dir)
}

// Node is one member of a run. The run loop owns the fields of the last block; the rest
// is set by open and by the arrival, before the loop begins, and not changed.
type Node struct {
	log  *slog.Logger
	out  Output
	dir  string
	self plan.PeerID
	name string // of the machine, for people
	boot uint64 // differs each time the process starts
	seat membership
	// trying are the others' addresses that a node which comes back knows.
	trying []string

	store     *checkpoint.Store
	hardware  *hardware.Machine
	swarm     *swarm.Swarm
	raft      *consensus.Node
	links     *link.Endpoint
	data      *dataset.Dataset
	keeper    *checkpointer.Checkpointer
	requests  requests
	leader    *leader.Leader
	announcer *gossip.Announcer
	api       *api.Server
	group     errgroup.Group
	base      context.Context // of everything that runs until Close
	cancel    context.CancelFunc

	beats    *gossip.Tracker
	meter    gossip.LinkMeter
	grants   *admission.Grants
	monitor  *monitor.Monitor
	trace    *trace.Recorder // nil without one
	leaveNow chan struct{}   // closed when this node is asked to leave
	broken   chan error      // the first error of an essential goroutine
	askLeave sync.Once

	machine    machine
	generation *generation
	followed   plan.Generation // newest generation acted upon
	completed  bool            // the workers here finished the generation
	kept       checkpointer.ID // newest checkpoint acted upon
	keeping    chan struct{}   // closed when its manifest is stored
	seated     bool            // the run has admitted this node
	seatEpoch  uint64          // the roster at the last save of the seat
	exit       exit
	tasks      tasks
	last       lastWords // of the task that finishes the run
}

// watchDisk ends the node when other programs have filled its disk, or the consensus could
// not store what it must.
func (n *Node) watchDisk(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-n.store.Failed():
		return err
	case err := <-n.raft.Failed():
		return err
	}
}

// contacts are the peers that a proposal may be sent to while no leader is known.
func (n *Node) contacts() []plan.PeerID {
	var peers []plan.PeerID
	for _, c := range n.swarm.Members() {
		peers = append(peers, c.Peer)
	}
	return peers
}

// living are the nodes that may be asked for chunks.
func (n *Node) living() []plan.PeerID { return livingOf(n.raft.State(), n.contacts()) }

// livingOf are the roster's members that are not gone, and who else is connected: the founder
// of a run may enter the roster after others. The connection to a node that died outlives it.
func livingOf(state consensus.State, connected []plan.PeerID) []plan.PeerID {
	var peers []plan.PeerID
	for _, m := range state.Members {
		if m.State != consensus.Gone {
			peers = append(peers, m.Peer)
		}
	}
	for _, p := range connected {
		if _, member := state.Member(p); !member {
			peers = append(peers, p)
		}
	}
	return peers
}

// Close ends everything that open started and waits for it.
func (n *Node) Close() error {
	var errs []error
	if n.raft != nil {
		errs = append(errs, n.raft.Close())
	}
	if n.cancel != nil {
		n.cancel()
	}
	if n.monitor != nil {
		n.monitor.Close()
	}
	errs = append(errs, n.group.Wait())
	if n.swarm != nil {
		errs = append(errs, n.saveSeat(), n.swarm.Close())
	}
	if n.hardware != nil {
		errs = append(errs, n.hardware.Close())
	}
	errs = append(errs, n.store.Close(), n.trace.Close())
	return errors.Join(errs...)
}

// saveSeat writes down where this node and the others are, once it is in the run.
func (n *Node) saveSeat() error {
	if !n.seated {
		return nil
	}
	n.seat.Known = n.swarm.Known()
	if last, ok := n.swarm.Listening(); ok {
		n.seat.Last = last
	}
	return n.seat.save(n.dir)
}

// storeDir is the checkpoint store's folder within a node's folder.
func storeDir(dir string) string { return filepath.Join(dir, "store") }

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("node: make the run's folder: %w; choose another with --dir", err)
	}
	return nil
}
