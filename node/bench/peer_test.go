package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
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
	fmt.Println(`{"name":"Fake 1.0","kernel":"Slow","libraries":["/opt/fake"]}`)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch behaviour {
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
	if _, err := fake(t, "absent"); err == nil || !strings.Contains(err.Error(), "no such library") {
		t.Errorf("absent: %v", err)
	}
}

func TestKernelsBesideAPeer(t *testing.T) {
	shapes = [][3]int{{8, 16, 24}, {9, 7, 5}}
	t.Setenv(fakePeer, "slow")
	r, err := Kernels(t.Context(), KernelOptions{Sides: Sides{Rounds: 1, Python: os.Args[0]}, Threads: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Products) != len(shapes)*len(forms) || r.Peer != "Fake 1.0" || r.PeerKernel != "Slow" {
		t.Fatalf("got %+v", r)
	}
	for _, p := range r.Products {
		// The peer takes 1000 s for the same work.
		if !(p.Rate > 0 && p.Peer > 0 && p.Ratio > 100 && p.Rate/p.Peer > 100) {
			t.Errorf("%+v", p)
		}
	}
	if s := r.Summary; len(s) != 1 || s[0].LeastRatio > s[0].MedianRatio || s[0].LeastRatio <= 0 {
		t.Errorf("summary %+v", s)
	}
	checkText(t, r, "OpenBLAS", "threads 1: ratio")
}

func TestKernelsWithoutAPeer(t *testing.T) {
	shapes = [][3]int{{8, 16, 24}}
	r, err := Kernels(t.Context(), KernelOptions{Sides: Sides{Rounds: 1, Python: "/nonexistent/python3"}, Threads: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	if r.NoPeer == "" || r.Peer != "" || r.Products[0].Rate <= 0 || r.Limits[0].Arithmetic <= 0 || r.Limits[0].Copy <= 0 {
		t.Errorf("got %+v", r)
	}
	checkText(t, r, "apt-get install", "/nonexistent/python3")
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
