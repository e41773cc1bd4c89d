package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// ownWorker reports whether the arguments are those of a worker.
func ownWorker(args []string) bool {
	return len(args) == 4 && args[1] == "bench" && args[2] == "--worker"
}

// fakeCard makes this program's own sides those of a card with cuBLASLt, where a call takes 1 s, and
// 2 s by own kernels. It needs the library path that the peer names.
const fakeCard = "PNODE_BENCH_FAKE_CARD"

func beCard(described string) {
	kernel, seconds := cuBLASLt, 1
	switch {
	case strings.Contains(described, `"plain":true`):
		kernel = "vector units"
	case strings.Contains(described, `"own":true`):
		kernel, seconds = "own kernels", 2
	case !strings.HasPrefix(os.Getenv(libraryPath), "/opt/fake"):
		kernel = "own kernels (no such library)"
	}
	fmt.Printf("{\"name\":\"pnode\",\"kernel\":%q}\n", kernel)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Printf("{\"seconds\":%d}\n", seconds)
	}
}

// fakePeer makes this test binary a peer: the variable holds what it does.
const fakePeer = "PNODE_BENCH_FAKE_PEER"

func TestMain(m *testing.M) {
	roundTime, stepRound, batchFLOPs = time.Millisecond, 30*time.Millisecond, 1e6
	if ownWorker(os.Args) && os.Getenv(fakeCard) != "" {
		beCard(os.Args[3])
		os.Exit(0)
	}
	if ownWorker(os.Args) {
		if err := Worker(context.Background(), os.Args[3], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	behaviour := os.Getenv(fakePeer)
	if behaviour == "" {
		os.Exit(m.Run())
	}
	if behaviour == "absent" {
		fmt.Fprintln(os.Stderr, "no such library")
		os.Exit(3)
	}
	if behaviour == "is mute" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	asked := os.Args[len(os.Args)-1]
	fmt.Println(firstLine(behaviour, asked))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch behaviour {
		case "compiles":
			seconds := 1000
			if strings.Contains(asked, `"compile":true`) {
				seconds = 400
			}
			fmt.Printf("{\"seconds\":%d,\"peak_bytes\":3145728}\n", seconds)
		case "lacks a compiler":
			reply := `{"seconds":1000}`
			if strings.Contains(asked, `"compile":true`) {
				reply = `{"error":"no working\u001b[31m compiler\nfound"}`
			}
			fmt.Println(reply)
		case "is early":
			fmt.Println(`{"seconds":-1}`)
		case "is at once":
			fmt.Println(`{"seconds":0}`)
		case "is a figure":
			fmt.Println(`{"seconds":1e999}`)
		case "dies":
			fmt.Fprintln(os.Stderr, "out of luck")
			os.Exit(1)
		case "refuses":
			fmt.Println(`{"error":"too large"}`)
		case "is too small":
			fmt.Println(`{"error":"CUDA out of memory. Tried to allocate 2 TiB"}`)
		case "is silent":
		case "babbles":
			fmt.Println(strings.Repeat("x", 2*maxAnswerBytes))
		default:
			fmt.Println(`{"seconds":1000}`)
		}
	}
}

// firstLine returns what a fake peer says first. It knows of libraries where it is asked for them, and takes
// the name of one that it has to use for its kernel.
func firstLine(behaviour, asked string) string {
	switch {
	case behaviour == "blinks":
		return `{"name":"\u001b[2JFake"}`
	case behaviour == "boasts":
		return `{"name":"` + strings.Repeat("x", maxNameBytes+1) + `"}`
	case behaviour == "is nobody":
		return `{}`
	case strings.Contains(asked, `"list":true`):
		return `{"name":"Fake","found":[{"path":"/opt/old.so","name":"OpenBLAS 0.3.9"},{"path":"/opt/new.so","name":"OpenBLAS 0.3.30"},{"path":"/opt/bad.so","error":"no \u0007 ELF"}]}`
	case strings.Contains(asked, `"library":"`):
		return `{"name":"Fake 1.0","kernel":` + asked[strings.Index(asked, ":")+1:len(asked)-1] + `}`
	default:
		return `{"name":"Fake 1.0","kernel":"Slow","with":["Fakes 2.0"],"libraries":["/opt/fake"]}`
	}
}

func fake(t *testing.T, behaviour string) (*peer, error) {
	t.Helper()
	t.Setenv(fakePeer, behaviour)
	return startPeer(t.Context(), nil, nil, os.Args[0])
}

func TestPeerFailures(t *testing.T) {
	for behaviour, want := range map[string]string{"dies": "out of luck", "refuses": "Fake 1.0: too large", "babbles": "buffer full"} {
		p, err := fake(t, behaviour)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.ask(struct{}{})
		closed := p.close()
		if err == nil || !strings.Contains(fmt.Sprint(err, closed), want) {
			t.Errorf("%s: %v, then %v; want %q", behaviour, err, closed, want)
		}
	}
	for behaviour, want := range map[string]string{
		"absent": "no such library", "is nobody": "it says no name",
		"blinks": `it says "\x1b[2JFake": want at most 200 bytes of printable text`, "boasts": "want at most 200 bytes",
	} {
		if _, err := fake(t, behaviour); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", behaviour, err, want)
		}
	}
}

// TestTimesThatCannotBe: what a peer says of its time is checked before it becomes a figure.
func TestTimesThatCannotBe(t *testing.T) {
	for behaviour, want := range map[string]string{"is early": "took -1 s", "is at once": "took 0 s", "is a figure": "cannot unmarshal number"} {
		p, err := fake(t, behaviour)
		if err != nil {
			t.Fatal(err)
		}
		took := takeTurns(3, p.asks(struct{}{}))
		_ = p.close()
		if took[0].err == nil || !strings.Contains(took[0].err.Error(), want) || took[0].rate(1) != 0 {
			t.Errorf("%s: %+v, want %q", behaviour, took[0], want)
		}
	}
}

func TestKernelsBesideAPeer(t *testing.T) {
	shapes = [][3]int{{8, 16, 24}, {9, 7, 5}}
	t.Setenv(fakePeer, "slow")
	r, err := Kernels(t.Context(), KernelOptions{Sides: Sides{Rounds: 1, Python: os.Args[0]}, Threads: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Products) != len(shapes)*len(forms)*len(precisions) || len(r.Peers) != 2 {
		t.Fatalf("got %+v", r)
	}
	blas, torch := r.Peers[0], r.Peers[1]
	if blas.From != "/opt/new.so" || blas.Kernel != blas.From || len(blas.Others) != 2 || torch.Kernel != "Slow" || torch.From != "" {
		t.Errorf("peers %+v", r.Peers)
	}
	for _, p := range r.Products {
		want := []string{pyTorch}
		if p.DType == "f32" {
			want = []string{openBLAS, pyTorch}
		}
		var names []string
		for _, peer := range p.Peers {
			names = append(names, peer.Peer)
			// The peer takes 1000 s for the same work.
			if !(p.Rate > 0 && peer.Rate > 0 && peer.Ratio > 100 && p.Rate/peer.Rate > 100) {
				t.Errorf("%+v", p)
			}
		}
		if !slices.Equal(names, want) || p.Best == nil || p.Limit <= 0 {
			t.Errorf("%+v, want %v", p, want)
		}
	}
	if s := r.Summary; len(s) != len(precisions) || s[0].LeastRatio > s[0].MedianRatio || s[0].LeastRatio <= 0 {
		t.Errorf("summary %+v", s)
	}
	checkText(
		t, r, "peer Fake 1.0, kernels /opt/new.so, from /opt/new.so", "not taken: /opt/old.so: OpenBLAS 0.3.9", "not taken: /opt/bad.so: no ELF",
		"peer Fake 1.0, kernels Slow, with Fakes 2.0", "OpenBLAS  PyTorch  ", "f32, threads 1: ratio", "bf16, threads 1: ratio",
	)
}

// TestPeersOfProductsThatFail leave a mark in their column, and the others are compared.
func TestPeersOfProductsThatFail(t *testing.T) {
	shapes = [][3]int{{8, 16, 24}}
	t.Setenv(fakePeer, "refuses")
	r, err := Kernels(t.Context(), KernelOptions{Sides: Sides{Rounds: 2, Python: os.Args[0]}, Threads: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Products {
		if p.Rate <= 0 || p.Best != nil || p.Peers[0].Open != "Fake 1.0: too large" || p.Peers[0].Rate != 0 {
			t.Errorf("%+v", p)
		}
	}
	checkText(t, r, "- [1]", "[1] Fake 1.0: too large")
}

// TestTheFastestPeerCounts, whichever comes first.
func TestTheFastestPeerCounts(t *testing.T) {
	for _, c := range []struct {
		all  []Comparison
		want string
	}{
		{nil, ""},
		{[]Comparison{{"none", 0}}, ""},
		{[]Comparison{{"slow", 1.5}, {"fast", 0.9}, {"none", 0}}, "fast"},
		{[]Comparison{{"fast", 0.9}, {"slow", 1.5}}, "fast"},
	} {
		got := fastest(c.all)
		if (got == nil) != (c.want == "") || got != nil && got.Peer != c.want {
			t.Errorf("of %v it is %+v, want %q", c.all, got, c.want)
		}
	}
}

func TestKernelsWithoutAPeer(t *testing.T) {
	shapes = [][3]int{{8, 16, 24}}
	r, err := Kernels(t.Context(), KernelOptions{Sides: Sides{Rounds: 1, Python: "/nonexistent/python3"}, Threads: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	if l := r.Limits[0]; r.Products[0].Rate <= 0 || r.Products[0].Best != nil || len(r.Summary) > 0 || l.Arithmetic <= 0 || l.PairArithmetic <= 0 || l.Copy <= 0 {
		t.Errorf("got %+v", r)
	}
	checkText(t, r, "no OpenBLAS: ", "no PyTorch: ", "apt-get install", "/nonexistent/python3")
}

func checkText(t *testing.T, r interface{ Text() string }, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(r.Text(), w) {
			t.Errorf("no %q in\n%s", w, r.Text())
		}
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []KernelOptions{{Sides: Sides{Rounds: -1}}, {Sides: Sides{Rounds: 1}, Threads: []int{0}}, {Sides: Sides{Rounds: 1}, Threads: []int{1 << 20}}} {
		if _, err := Kernels(t.Context(), o); err == nil || !strings.Contains(err.Error(), "take 1") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := median(c.x); got != c.want {
			t.Errorf("median is %v, want %v", got, c.want)
		}
	}
}
