package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// gradients makes one vector for each replica, of magnitudes so mixed that the order of a
// sum shows in its bits.
func gradients(replicas, n int) [][]float32 {
	rng := rand.New(rand.NewPCG(uint64(replicas), uint64(n)))
	all := make([][]float32, replicas)
	for r := range all {
		all[r] = make([]float32, n)
		for i := range all[r] {
			all[r][i] = float32(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(12)-6)))
		}
	}
	return all
}

// naive is the sum of groups' gradients by the definition: of the first half of them, and the rest.
func naive(all [][]float32) []float32 {
	half := (len(all) + 1) / 2
	sum := append([]float32(nil), all[0]...)
	if len(all) > 1 {
		sum = naive(all[:half])
		add(sum, naive(all[half:]))
	}
	return sum
}

// subtrees returns what a member brings of the groups' gradients: the sums of its subtrees.
func subtrees(sums plan.Sums, m Member, all [][]float32) (brings [][]float32) {
	for _, r := range sums.Subtrees(m.Groups) {
		brings = append(brings, naive(all[r.First:r.End]))
	}
	return brings
}

func sameBits(t *testing.T, name string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", name, i, got[i], want[i])
		}
	}
}

// allReduce runs every replica at once on layers' gradients by group, and returns by layer and replica
// the sums.
func allReduce(t *testing.T, members []Member, layers map[int][][]float32, cut pieces) (sent int, sums map[int][][]float32) {
	t.Helper()
	net, bytes, out := NewMemory(), new(atomic.Int64), map[int][][]float32{}
	var work errgroup.Group
	for layer, all := range layers {
		out[layer] = make([][]float32, len(members))
		for r, m := range members {
			work.Go(func() error {
				g := Group{Members: members, Sums: oneEach(len(all)), Self: plan.Replica(r), Layer: layer, Generation: 3, Step: 9, cut: cut}
				grads := subtrees(g.Sums, m, all)
				err := AllReduce(t.Context(), counted{net.End(m.Peer), bytes}, g, grads)
				out[layer][r] = grads[len(grads)-1]
				return err
			})
		}
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	return int(bytes.Load()), out
}

// oneEach is the order of sums of groups of one micro-batch each.
func oneEach(groups int) plan.Sums { return plan.Sums{Micros: groups, Groups: groups} }

// members returns replicas with one group each.
func members(replicas int) []Member { return sharing(slices.Repeat([]int{1}, replicas)...) }

// sharing returns replicas with so many groups each.
func sharing(groups ...int) []Member {
	var ms []Member
	next := 0
	for r, n := range groups {
		ms = append(ms, Member{
			Peer: plan.PeerID(fmt.Sprintf("peer%d", r)), Stage: plan.Stage(r % 2), Groups: plan.GroupRange{First: next, End: next + n},
		})
		next += n
	}
	return ms
}

func TestAllReduceIsTheSumOfTheTree(t *testing.T) {
	for replicas := 1; replicas <= 5; replicas++ {
		for _, n := range []int{0, 1, 2, 3, 7, 64, 1001} {
			all := gradients(replicas, n)
			want := naive(all)
			sent, sums := allReduce(t, members(replicas), map[int][][]float32{2: all}, pieces(n%3*40)) // whole, or in some of 40 or 80
			for r := range all {
				sameBits(t, fmt.Sprintf("R=%d n=%d replica %d", replicas, n, r), sums[2][r], want)
			}
			if most := 4 * 2 * (replicas - 1) * n; sent != most {
				t.Fatalf("R=%d n=%d: %d bytes sent, want %d", replicas, n, sent, most)
			}
		}
	}
}

// TestAnySharesGiveTheSameBits: however the groups are shared, aligned to subtrees or not.
func TestAnySharesGiveTheSameBits(t *testing.T) {
	for groups := 1; groups <= 9; groups++ {
		all := gradients(groups, 50)
		want := naive(all)
		for cuts := range 1 << (groups - 1) { // a bit for each place where a share may end
			var shares []int
			n := 1
			for at := range groups - 1 {
				if cuts>>at&1 == 1 {
					shares, n = append(shares, n), 0
				}
				n++
			}
			shares = append(shares, n)
			_, sums := allReduce(t, sharing(shares...), map[int][][]float32{2: all}, pieces(cuts%2*20))
			for r, sum := range sums[2] {
				sameBits(t, fmt.Sprintf("shares %v, replica %d", shares, r), sum, want)
			}
		}
	}
}

// TestOrderShows guards the test above: another order must give other bits.
func TestOrderShows(t *testing.T) {
	all := gradients(3, 1001)
	forward, backward := naive(all), naive([][]float32{all[1], all[2], all[0]})
	for i := range forward {
		if forward[i] != backward[i] {
			return
		}
	}
	t.Fatal("the order of summation makes no difference on these gradients")
}

// TestAllReduceSharedPeer has replicas 0 and 2, and all layers at once, on one peer.
func TestAllReduceSharedPeer(t *testing.T) {
	ms := members(4)
	ms[2].Peer = ms[0].Peer
	layers, wants := map[int][][]float32{}, map[int][]float32{}
	for layer := range 3 {
		layers[layer] = gradients(4, 50+layer)
		wants[layer] = naive(layers[layer])
	}
	_, sums := allReduce(t, ms, layers, 0)
	for layer, all := range sums {
		for r := range all {
			sameBits(t, fmt.Sprintf("layer %d replica %d", layer, r), all[r], wants[layer])
		}
	}
}

func TestAllReduceKeepsNegativeZero(t *testing.T) {
	minus := float32(math.Copysign(0, -1))
	all := [][]float32{{minus, minus}, {minus, 0}}
	_, sums := allReduce(t, members(2), map[int][][]float32{0: all}, 0)
	sameBits(t, "replica 1", sums[0][1], []float32{minus, 0})
}

func TestAllReduceRefusesBadGroups(t *testing.T) {
	good := Group{Members: members(2), Sums: oneEach(2), Self: 1, Layer: 4}
	for name, change := range map[string]func(*Group){
		"no members":         func(g *Group) { g.Members = nil },
		"self outside":       func(g *Group) { g.Self = 2 },
		"self negative":      func(g *Group) { g.Self = -1 },
		"layer negative":     func(g *Group) { g.Layer = -1 },
		"layer":              func(g *Group) { g.Layer = maxLayers },
		"no groups":          func(g *Group) { g.Sums = plan.Sums{} },
		"a replica too many": func(g *Group) { g.Sums = oneEach(1) },
		"two sums": func(g *Group) {
			g.Members, g.Sums = sharing(1, 2), oneEach(3)
			g.Members[1].Groups = plan.GroupRange{First: 1, End: 3}
		},
	} {
		bad := good
		change(&bad)
		if err := AllReduce(t.Context(), NewMemory().End("peer1"), bad, [][]float32{make([]float32, 3)}); !errors.Is(err, ErrBadGroup) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLargestTagsAreValid(t *testing.T) {
	g := Group{Members: make([]Member, maxReplicas), Sums: oneEach(maxReplicas), Self: maxReplicas - 1, Layer: maxLayers - 1}
	if err := g.validate(); err != nil {
		t.Fatal(err)
	}
	if err := numbered(g.tag(wire.ReducePart, maxReplicas-1, maxReplicas-1), maxPieces-1).Validate(); err != nil {
		t.Fatal(err)
	}
}

// TestAllReduceLengthMismatch: a member with another length is an error, not a wrong sum.
func TestAllReduceLengthMismatch(t *testing.T) {
	net, ms := NewMemory(), members(2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work errgroup.Group
	for r, n := range []int{10, 14} {
		work.Go(func() error {
			defer cancel()
			return AllReduce(ctx, net.End(ms[r].Peer), Group{Members: ms, Sums: oneEach(2), Self: plan.Replica(r)}, [][]float32{make([]float32, n)})
		})
	}
	var fault *plan.Fault
	if err := work.Wait(); !errors.As(err, &fault) || fault.Kind != plan.BadFrame || !slices.ContainsFunc(ms, func(m Member) bool { return m.Peer == fault.Accused }) {
		t.Fatalf("got %v, want a frame that one of them is accused of", err)
	}
}

func TestAllReduceCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- AllReduce(ctx, NewMemory().End("peer0"), Group{Members: members(3), Sums: oneEach(3)}, [][]float32{make([]float32, 9)})
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestSumTied(t *testing.T) {
	for cut, peers := range map[pieces][2]plan.PeerID{0: {"a", "b"}, 77: {"a", "a"}, 10: {"a", "b"}} {
		all := gradients(2, 77)
		want := naive(all)
		net := NewMemory()
		var work errgroup.Group
		for end := range 2 {
			work.Go(func() error {
				tied := Tied{Generation: 1, Step: 2, Embed: Member{Peer: peers[0]}, Head: Member{Peer: peers[1], Stage: 3}, SelfHead: end == 1, Groups: 1, cut: cut}
				return SumTied(t.Context(), net.End(peers[end]), tied, all[end])
			})
		}
		if err := work.Wait(); err != nil {
			t.Fatal(err)
		}
		sameBits(t, "embedding", all[0], want)
		sameBits(t, "head", all[1], want)
	}
}

// TestPiecesAreOfWhatLinksTake and no more of them than there are numbers for.
func TestPiecesAreOfWhatLinksTake(t *testing.T) {
	for _, n := range []int{0, 1, leastPiece, leastPiece + 1, 1 << 22, mostPiece, 40 * mostPiece} {
		p, at := pieces(0), 0
		for k := range p.count(n) {
			first, end := p.of(k, n)
			if first != at || end-first > mostPiece || 4*(end-first) > MostBytes(n) || n > 0 && end <= first {
				t.Fatalf("piece %d of %d elements has %d to %d", k, n, first, end)
			}
			at = end
		}
		if at != n || 4*mostPiece > wire.MaxTensorBytes {
			t.Errorf("pieces of %d elements have %d", n, at)
		}
	}
	seen := map[wire.Tag]bool{}
	for i := range 4 {
		for k := range maxPieces / 4 {
			number, err := pieces(2).number(i, k, maxPieces/2)
			if err != nil {
				t.Fatal(err)
			}
			tag := numbered(wire.Tag{Kind: wire.ReducePart, Index: maxReplicas*maxLayers - 1}, number)
			seen[tag] = true
			if err := tag.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) != maxPieces {
		t.Errorf("%d tags of %d pieces", len(seen), maxPieces)
	}
	if _, err := pieces(2).number(4, 0, maxPieces/2); !errors.Is(err, ErrBadGroup) {
		t.Errorf("got %v", err)
	}
}

func TestSumTiedRefusesOneStage(t *testing.T) {
	if err := SumTied(t.Context(), NewMemory().End("a"), Tied{}, nil); !errors.Is(err, ErrBadGroup) {
		t.Fatalf("got %v", err)
	}
}

func BenchmarkAllReduce(b *testing.B) {
	ms, all := members(2), gradients(2, 1<<20)
	b.SetBytes(4 << 20)
	for b.Loop() {
		net := NewMemory()
		var work errgroup.Group
		for r := range ms {
			work.Go(func() error {
				return AllReduce(b.Context(), net.End(ms[r].Peer), Group{Members: ms, Sums: oneEach(2), Self: plan.Replica(r)}, [][]float32{all[r]})
			})
		}
		if err := work.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}
