// Package netlab builds small internets of Linux network namespaces: hosts that are public, behind NATs of the usual
// kinds, in rented containers or behind proxies, and lines with a bandwidth, a delay and losses. What runs there are
// real processes, sockets and the kernel's own TCP. Tests use it, and node/chaos, through a Program.
//
//	lab := netlab.New(t) // skips the test where it lacks root, ip or nft
//	public := lab.Host("public", netlab.Public)
//	home := lab.Host("home", netlab.PortRestricted, netlab.Line{Rate: 100e6, Delay: 20 * time.Millisecond, Loss: 0.005})
//	home.Do(func() { conn, err = net.Dial("tcp4", public.Addr().String()+":443") })
//	err := home.Start(exec.Command("pnode", "join", invite))
//
// A router namespace stands for the internet: one hop from any host's outermost router. Addresses look public, since
// libp2p treats those for documentation and private use otherwise; no packet leaves the namespaces.
//
// NATs forget UDP after 30 s without a packet and TCP after 5 minutes, as the more forgetful of real ones do.
// A lab has an Owner. Namespaces carry the number of the process in their names. They are removed with the owner, or,
// where that crashed, by the next lab on the machine; processes that were started in them end with the owner.
//
// Cut drops what goes from one host to another within the internet, as a route that is gone: neither end is told.
package netlab
