package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"pnode/pipeline/collective"
	"pnode/pipeline/link"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
)

//go:embed torchaverage.py
var torchAverageOnly string

var torchAverageScript = torchPeerScript + torchAverageOnly

// averageLayer is how many elements a layer has: those of a block of 384 channels.
const averageLayer = 1_774_464

// averagePort is where peers of this program listen.
const averagePort = 4001

// averager is one peer of a sum: a member of a run like any other, with links to the other peers.
type averager struct {
	averageTask
	swarm    *swarm.Swarm
	endpoint *link.Endpoint
	session  *link.Session
	members  []collective.Member
	step     plan.Step
	grads    []float32
	chance   *rand.Rand
}

// serve answers requests until there are none.
func (t averageTask) serve(ctx context.Context, in io.Reader, out *json.Encoder) error {
	a := &averager{averageTask: t, grads: make([]float32, t.Elements), chance: rand.New(rand.NewPCG(1, uint64(t.Rank)))}
	if err := a.join(ctx); err != nil {
		return err
	}
	defer a.swarm.Close()
	ctx, cancel := context.WithCancel(ctx)
	a.endpoint = link.NewEndpoint(a.swarm.Data(), link.Options{PeerTimeout: time.Minute})
	var running errgroup.Group
	running.Go(func() error { return a.endpoint.Run(ctx) })
	defer func() {
		cancel()
		_ = running.Wait() // its context has ended
	}()
	return serveRequests(hello{Name: "pnode"}, in, out, func(r averageRequest) (answer, error) {
		if r.Prepare {
			return answer{}, a.prepare(ctx)
		}
		return a.sum(ctx)
	})
}

// at returns the file in which a peer says its ID and addresses.
func (t averageTask) at(rank int) string { return filepath.Join(t.Folder, "peer"+strconv.Itoa(rank)) }

// join becomes a member of the run.
func (a *averager) join(ctx context.Context) error {
	owner, err := admission.LoadOwner(a.Folder)
	if err != nil {
		return err
	}
	own := filepath.Join(a.Folder, "key"+strconv.Itoa(a.Rank))
	if err := os.Mkdir(own, 0o700); err != nil {
		return err
	}
	id, err := admission.LoadIdentity(own)
	if err != nil {
		return err
	}
	capability, err := owner.Capability(benchRun, id, 24*time.Hour, time.Now())
	if err != nil {
		return err
	}
	c := swarm.Config{
		Identity: id, Run: benchRun, OwnerKey: owner.PublicKey(), Capability: capability,
		Listen: []string{":" + strconv.Itoa(averagePort)},
	}
	if a.Rank > 0 {
		text, err := os.ReadFile(a.at(0))
		if err != nil {
			return err
		}
		c.Bootstrap = strings.Fields(string(text))[1:]
	}
	if a.swarm, err = swarm.New(ctx, c); err != nil {
		return err
	}
	text := string(a.swarm.ID()) + " " + strings.Join(a.swarm.Addrs(), " ")
	return os.WriteFile(a.at(a.Rank), []byte(text), 0o600)
}

// prepare waits for the other peers the first time, and makes a gradient.
func (a *averager) prepare(ctx context.Context) error {
	for a.session == nil {
		changed := a.swarm.Changed()
		if len(a.swarm.Members()) == a.Size-1 {
			if err := a.open(); err != nil {
				return err
			}
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for i := range a.grads {
		a.grads[i] = float32(a.chance.NormFloat64())
	}
	a.grads[0] = float32(a.Rank + 1)
	return nil
}

// open opens a session with all peers, which are replicas in the order of their ranks.
func (a *averager) open() error {
	var peers []plan.PeerID
	for rank := range a.Size {
		text, err := os.ReadFile(a.at(rank))
		if err != nil {
			return err
		}
		id := plan.PeerID(strings.Fields(string(text))[0])
		peers = append(peers, id)
		a.members = append(a.members, collective.Member{Peer: id, Groups: plan.GroupRange{First: rank, End: rank + 1}})
	}
	a.session = a.endpoint.Session(1, peers)
	a.session.Settled()
	return nil
}

// sum adds the gradient up with those of the other peers, in layers from the last one on as pipeline does.
func (a *averager) sum(ctx context.Context) (answer, error) {
	begin := time.Now()
	a.step++
	work, ctx := errgroup.WithContext(ctx)
	room := semaphore.NewWeighted(plan.ExchangedBytes)
	layers := (len(a.grads) + averageLayer - 1) / averageLayer
	for layer := range layers {
		grad := a.grads[layer*averageLayer : min(len(a.grads), (layer+1)*averageLayer)]
		bytes := min(4*int64(len(grad)), plan.ExchangedBytes)
		if err := room.Acquire(ctx, bytes); err != nil {
			return answer{}, work.Wait()
		}
		work.Go(func() error {
			defer room.Release(bytes)
			g := collective.Group{
				Members: a.members, Sums: plan.Sums{Micros: a.Size, Groups: a.Size}, Self: plan.Replica(a.Rank), Layer: layer,
				Generation: 1, Step: a.step,
			}
			return collective.AllReduce(ctx, a.session, g, [][]float32{grad})
		})
	}
	if err := work.Wait(); err != nil {
		return answer{}, err
	}
	if want := float32(a.Size * (a.Size + 1) / 2); a.grads[0] != want {
		return answer{}, fmt.Errorf("the sum of the first elements is %v, not %v", a.grads[0], want)
	}
	return answer{Seconds: time.Since(begin).Seconds(), Note: a.over()}, nil
}

// over says over which transports messages go, and over how many connections.
func (a *averager) over() string {
	var ways []string
	for _, s := range a.session.Stats() {
		way := fmt.Sprintf("%d %s", s.Connections, s.Transport)
		if !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	slices.Sort(ways)
	return strings.Join(ways, ", ")
}
