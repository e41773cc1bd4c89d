package link

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWarmConnectionIsFasterAtOnce: the first message on a line of 100 Mbit/s and 40 ms takes
// its time on the line and one way, not the round trips in which a window opens.
func TestWarmConnectionIsFasterAtOnce(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	shape := Shape{BytesPerS: 12_500_000, Delay: 20 * time.Millisecond}
	alone := time.Duration(float64(size)/12_500_000*float64(time.Second)) + shape.Delay
	first := func(t *testing.T, warm bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c, _ := emulated(t, 2, shape, Options{})
			defer c.close()
			sessions := c.sessions(1)
			if warm {
				sessions[0].Warm(c.ids[1])
				sessions[1].Warm(c.ids[0])
			}
			time.Sleep(3 * time.Second)
			begin := time.Now()
			mustSend(t, sessions[0], c.ids[1], activation(1, 1, 0), payload(size, 1))
			mustReceive(t, sessions[1], c.ids[0], activation(1, 1, 0), payload(size, 1))
			took = time.Since(begin)
			if st := sessions[1].Stats()[0]; st.FramesReceived != 1 || st.PayloadReceived != size {
				t.Errorf("padding is counted: %+v", st)
			}
		})
		return took
	}
	cold, warm := first(t, false), first(t, true)
	t.Logf("cold %v, warm %v, ideal %v", cold, warm, alone)
	if warm > alone*5/4 || cold < warm*5/4 {
		t.Errorf("the first message took %v, %v once warm; %v is ideal", cold, warm, alone)
	}
}
