package swarm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pnode/swarm/netlab"
)

// A router that maps ports by NAT-PMP or UPnP makes the member behind it one that others dial, also those that no hole
// can be punched to. It takes miniupnpd, a Debian package (miniupnpd-nftables).
func TestPortMapping(t *testing.T) {
	daemon, err := exec.LookPath("miniupnpd")
	if err != nil {
		t.Skip("miniupnpd is not installed")
	}
	for name, settings := range map[string]string{"NAT-PMP": "enable_natpmp=yes\nenable_upnp=no\n", "UPnP": "enable_natpmp=no\nenable_upnp=yes\n"} {
		t.Run(name, func(t *testing.T) {
			lab := netlab.New(t)
			folder := natOwner(t)
			public := natStart(t, lab.Host("public", netlab.Public), folder)
			at := lab.Host("home", netlab.PortRestricted)
			at.Gateway(`table inet filter {
				chain forward { type filter hook forward priority 1; jump miniupnpd; }
				chain prerouting { type nat hook prerouting priority -99; jump prerouting_miniupnpd; }
				chain postrouting { type nat hook postrouting priority 101; jump postrouting_miniupnpd; }
				chain miniupnpd {}
				chain prerouting_miniupnpd {}
				chain postrouting_miniupnpd {}
			}`)
			conf := filepath.Join(t.TempDir(), "miniupnpd.conf")
			text := settings + "ext_ifname=wan\nlistening_ip=lan\nsecure_mode=yes\nuuid=8c9ea41a-4619-4caa-967b-749e7187906d\n" +
				"lease_file=" + conf + ".leases\nallow 1024-65535 0.0.0.0/0 1024-65535\n"
			if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			router := exec.Command(daemon, "-d", "-f", conf, "-P", conf+".pid")
			var said strings.Builder
			router.Stdout, router.Stderr = &said, &said
			if err := at.StartGateway(router); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				router.Process.Kill()
				router.Wait()
				if t.Failed() {
					t.Logf("the router says:\n%s", said.String())
				}
			})
			home := natStart(t, at, folder, public.addrs...)
			mapped := home.do("mapped")
			t.Logf("mapped after %s: %v", mapped.Took, mapped.Addrs)
			other := natStart(t, lab.Host("other", netlab.Symmetric), folder, public.addrs...)
			t.Logf("dialed after %s", other.do("direct", home.peer).Took)
			t.Logf("link: %+v", other.do("probe", home.peer).Link)
		})
	}
}
