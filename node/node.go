package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"pnode/checkpoint"
	"pnode/kernels"
	"pnode/node/api"
	"pnode/node/dataset"
	"pnode/pipeline/link"
	"pnode/pipeline/trace"
	"pnode/planner"
	"pnode/swarm"
	"pnode/swarm/consensus"
)

// Output is where a node shows itself to whoever started it.
type Output struct {
	// Events gets everything that happens, one call at a time.
	Events func(api.Event)
	// Notice gets lines for people: the invite, what the text is.
	Notice func(string)
	Log    *slog.Logger
}

// Node is one member of a run. The run loop owns the fields of the last block; the rest
// is set by open and by the arrival, before the loop begins, and not changed.
type Node struct {
	log  *slog.Logger
	out  Output
	dir  string
	self planner.PeerID
	boot uint64 // differs each time the process starts
	seat membership
	// trying are the others' addresses that a node which comes back knows.
	trying []string

	store  *checkpoint.Store
	device kernels.Device
	swarm  *swarm.Swarm
	raft   *consensus.Node
	links  *link.Endpoint
	data   *dataset.Dataset
	keeper *keeper
	api    *api.Server
	group  errgroup.Group
	base   context.Context // of everything that runs until Close
	cancel context.CancelFunc

	hub      api.Hub
	beats    *tracker
	meter    linkMeter
	ledger   *swarm.Ledger
	progress *progress
	trace    *trace.Recorder // nil without one
	profile  ownProfile
	leaveNow chan struct{} // closed when this node is asked to leave
	broken   chan error    // the first error of an essential goroutine
	askLeave sync.Once
	// heardBeat wakes followSteps.
	heardBeat chan struct{}

	shared sharedState

	machine    machine
	generation *generation
	followed   planner.Generation // newest generation acted upon
	completed  bool               // the workers here finished the generation
	kept       checkpointID       // newest checkpoint acted upon
	keeping    chan struct{}      // closed when its manifest is stored
	seated     bool               // the run has admitted this node
	seatEpoch  uint64             // the roster at the last save of the seat
	exit       exit
	tasks      tasks
}

// checkpointID tells checkpoints apart: after a rollback a step is saved once more.
type checkpointID struct {
	step       planner.Step
	generation planner.Generation
}

func idOf(c consensus.Checkpoint) checkpointID { return checkpointID{c.Step, c.Generation} }

// opening is what Train, resume and Join find out before the parts are started.
type opening struct {
	dir      string
	seat     membership
	identity swarm.Identity
	owner    swarm.Owner
	store    *checkpoint.Store
	threads  int
	emulate  string // file
	trace    string // file
	look     look
	// founder starts the consensus log of a new run; returning comes back to one, with a
	// store that must be there.
	founder, returning bool
}

// open starts all parts of a node. On an error everything is closed again, the store
// included.
func open(ctx context.Context, o opening, out Output) (_ *Node, err error) {
	n := &Node{
		log: out.Log, out: out, dir: o.dir, self: o.identity.Peer(), seat: o.seat, store: o.store,
		beats: newTracker(), ledger: swarm.NewLedger(), leaveNow: make(chan struct{}), broken: make(chan error, 1),
		heardBeat: make(chan struct{}, 1),
	}
	if o.returning {
		n.trying = o.seat.Known
	}
	n.progress = &progress{emit: n.hub.Publish}
	n.machine = machine{phase: Joining, changed: n.phaseChanged}
	n.shared.phase = Joining
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if o.trace != "" {
		if n.trace, err = trace.Create(o.trace); err != nil {
			return nil, err
		}
	}
	if n.boot, err = randomBoot(); err != nil {
		return nil, err
	}
	if n.device, err = o.look.device(o.threads, n.log); err != nil {
		return nil, err
	}
	// What ctx ends is this node's stay, in good order: the parts live until Close.
	ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.base = ctx
	if err := n.openSwarm(ctx, o); err != nil {
		return nil, err
	}
	if err := n.openConsensus(ctx, o.founder); err != nil {
		return nil, err
	}
	n.openLinks(ctx)
	if err := errors.Join(n.listenToBeats(), n.listenToProfiles()); err != nil {
		return nil, err
	}
	n.serveCopies()
	n.serveSteps()
	n.api, err = api.Listen(api.Options{Dir: o.dir, Node: n, Log: n.log})
	if err != nil {
		return nil, err
	}
	n.essential(func() error { return n.api.Run(ctx) })
	n.essential(func() error { return n.watchDisk(ctx) })
	n.group.Go(func() error { n.lead(ctx); return nil })
	n.group.Go(func() error { n.heartbeats(ctx); return nil })
	n.group.Go(func() error { n.followSteps(ctx); return nil })
	n.group.Go(func() error { n.showEvents(); return nil })
	return n, nil
}

// essential runs what the node cannot do without: its error ends the run loop.
func (n *Node) essential(f func() error) {
	n.group.Go(func() error {
		err := f()
		if err != nil {
			select {
			case n.broken <- err:
			default: // the first error is told already
			}
		}
		return nil
	})
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

func randomBoot() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("node: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]) >> 12, nil // exact in every JSON reader
}

// openSwarm listens where this node was found last, if that is still free, and else where
// it was asked to.
func (n *Node) openSwarm(ctx context.Context, o opening) (err error) {
	listen := o.seat.Listen
	if o.seat.Last != "" && anyPort(listen) {
		listen = o.seat.Last
	}
	n.swarm, err = n.newSwarm(ctx, o, listen)
	if errors.Is(err, swarm.ErrPortInUse) && listen != o.seat.Listen {
		n.log.Info("the last port is taken, listening on another", "last", listen)
		n.swarm, err = n.newSwarm(ctx, o, o.seat.Listen)
	}
	return err
}

func (n *Node) newSwarm(ctx context.Context, o opening, listen string) (*swarm.Swarm, error) {
	cfg := swarm.Config{
		Identity: o.identity, Run: o.seat.Run, OwnerKey: o.seat.OwnerKey, Owner: o.owner,
		Capability: o.seat.Capability, Bootstrap: o.seat.Known, MDNS: true, Logger: n.log, Admit: n.ledger.Admit,
		Socket: o.look.socket(),
	}
	if listen != "" {
		cfg.Listen = []string{listen}
	}
	return swarm.New(ctx, cfg)
}

// anyPort tells whether a "host:port" leaves the port open.
func anyPort(listen string) bool {
	_, port, err := net.SplitHostPort(listen)
	return listen == "" || err == nil && port == "0"
}

func (n *Node) openConsensus(ctx context.Context, founder bool) (err error) {
	n.raft, err = consensus.Start(ctx, consensus.Config{
		Transport: newRaftTransport(n.swarm), KV: raftStore{n.store.Bucket("raft")},
		Bootstrap: founder, Contacts: n.contacts, Logger: n.log,
	})
	return err
}

// contacts are the peers that a proposal may be sent to while no leader is known.
func (n *Node) contacts() []planner.PeerID {
	var peers []planner.PeerID
	for _, c := range n.swarm.Members() {
		peers = append(peers, c.Peer)
	}
	return peers
}

// living are the nodes that may be asked for chunks.
func (n *Node) living() []planner.PeerID { return livingOf(n.raft.State(), n.contacts()) }

// livingOf are the roster's members that are not gone, and who else is connected: the founder
// of a run may enter the roster after others. The connection to a node that died outlives it.
func livingOf(state consensus.State, connected []planner.PeerID) []planner.PeerID {
	var peers []planner.PeerID
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

func (n *Node) openLinks(ctx context.Context) {
	n.links = link.NewEndpoint(n.swarm.Data(), link.Options{Log: n.log})
	n.links.ServeChunks(n.store.Chunk)
	n.essential(func() error { return n.links.Run(ctx) })
	n.keeper = &keeper{
		self: n.self, store: n.store, log: n.raft, logger: n.log,
		chunks: chunkFetcher{self: n.self, store: n.store, fetch: n.links.Fetch, living: n.living},
		copier: func(ctx context.Context, holder planner.PeerID, r copyRequest) error {
			_, err := n.askPeer(ctx, holder, protocolCopy, r)
			return err
		},
	}
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
	n.hub.Close()
	errs = append(errs, n.group.Wait())
	if n.swarm != nil {
		errs = append(errs, n.saveSeat(), n.swarm.Close())
	}
	if n.device != nil {
		errs = append(errs, n.device.Close())
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
