package notice

import (
	"testing"
	"time"
)

func TestParseSetting(t *testing.T) {
	for text, want := range map[string]string{
		"": "auto", "auto": "auto", "off": "off", "aws": "aws", "gcp=http://127.0.0.1:80": "gcp=http://127.0.0.1:80",
		"azure=https://meta.example/": "azure=https://meta.example",
		"ec2":                         "", "auto=http://a": "", "off=http://a": "", "aws=": "", "aws=127.0.0.1": "", "aws=file:///etc": "",
		"aws=http://user:word@a": "", "aws=http://a?b": "", "aws=http://a#b": "", "=http://a": "",
	} {
		s, err := ParseSetting(text)
		if got := s.String(); err == nil && got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestSooner(t *testing.T) {
	now := time.Unix(1000, 0)
	leave, signal := Within("pnode leave", 0, now), Within("SIGTERM", 30*time.Second, now)
	cloud := Within("AWS", 2*time.Minute, now)
	for _, c := range []struct{ before, next, want Notice }{
		{Notice{}, leave, leave},
		{leave, signal, signal},
		{signal, leave, signal},
		{signal, cloud, signal},
		{cloud, signal, Notice{Why: "AWS", At: signal.At}},
	} {
		if got := c.before.Sooner(c.next); got.Why != c.want.Why || !got.At.Equal(c.want.At) {
			t.Errorf("%q then %q: %q at %v, want %q at %v", c.before.Why, c.next.Why, got.Why, got.At, c.want.Why, c.want.At)
		}
	}
}

// checkNotice fails on a notice whose time is out of bounds, or whose words are too long.
func checkNotice(t *testing.T, n *Notice, now time.Time) {
	t.Helper()
	if n == nil {
		return
	}
	if !n.At.IsZero() && (n.At.Before(now.Add(least)) || n.At.After(now.Add(azureNotice))) {
		t.Errorf("%q names a time %v from now", n.Why, n.At.Sub(now))
	}
	if n.Why == "" || len(n.Why) > 200 {
		t.Errorf("why is %q", n.Why)
	}
}

func FuzzDecodeAction(f *testing.F) {
	f.Add([]byte(`{"action": "stop", "time": "2017-09-18T08:22:00Z"}`))
	f.Add([]byte(`{"action": "hibernate"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		now := time.Unix(1500000000, 0)
		n, err := decodeAction(data, now)
		if (n == nil) == (err == nil) {
			t.Fatalf("%v, %v", n, err)
		}
		checkNotice(t, n, now)
	})
}

func FuzzDecodeEvents(f *testing.F) {
	f.Add([]byte(`{"DocumentIncarnation": 2, "Events": [{"EventId": "C", "EventStatus": "Scheduled", "EventType": "Preempt", "Resources": ["me"], "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}]}`))
	f.Add([]byte(`{"Events": [{"EventType": "Terminate", "Resources": ["me"]}, null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		now := time.Unix(1500000000, 0)
		n, _, err := decodeEvents(data, "me", now)
		if err != nil && n != nil {
			t.Fatalf("%v and %v", n, err)
		}
		checkNotice(t, n, now)
	})
}

func FuzzDecodeKeys(f *testing.F) {
	f.Add("TRUE\n")
	f.Add("PENDING_STOP")
	f.Fuzz(func(t *testing.T, value string) {
		now := time.Unix(1500000000, 0)
		n, err := decodePreempted(value, now)
		if err != nil && (n != nil || len(err.Error()) > 200) {
			t.Fatalf("%v and %v", n, err)
		}
		checkNotice(t, n, now)
		checkNotice(t, decodeStopState(value), now)
	})
}
