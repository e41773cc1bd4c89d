// Package api is how other processes of the same user talk to a running node: HTTP on a
// loopback port, guarded by a token that only this user can read.
//
// # Nouns
//
//   - Node: answers the server; packages node and node/monitor implement it.
//   - Status: what the node knows of the run now.
//   - Event: one thing that happened; Hub keeps the newest and hands them out.
//   - History: the losses of all steps as Curves of bounded size, and what else happened.
//   - Address: the content of <dir>/api.json, by which a Client finds its node.
//
// # Endpoints
//
//	GET  /v1/status   Status as JSON; of many members ?brief lists some, and counts the others
//	GET  /v1/metrics  what package metrics knows in the text format of Prometheus; /metrics is the same
//	GET  /v1/events   the newest events and then those to come, one JSON object a line;
//	                  ?after=SEQ leaves out those that are known
//	GET  /v1/history  History as JSON: loss curves and what happened, thinned out
//	GET  /v1/schedule.svg  a step of the running plan, as simulated with the times that are seen
//	GET  /v1/checkpoints  CheckpointList as JSON
//	POST /v1/model    Model as JSON: the newest checkpoint, which stays while it is read
//	POST /v1/keep     Keeping as JSON: the node keeps the newest checkpoint whole from now on
//	POST /v1/chunk    {"step": 50, "hash": "..."} -> the chunk's bytes
//	POST /v1/invite   {"ttl_s": 3600, "uses": 1} -> {"invite": "pnode1-..."}
//	GET  /v1/newcomers  the machines of the local network that ask to be let in, with their codes
//	POST /v1/admit    {"code": "012345"} -> {"done": "..."}: who shows it gets an invite; another code refuses all; with "refuse": true it is told that it gets none, or, without a code, all that asked "until" a time
//	GET  /v1/admission  Admission as JSON: whether this node lets machines in, and who asks, without their codes
//	POST /v1/admission/admit, /v1/admission/invite  as /v1/admit and /v1/invite, which answers with a QR code too and makes no owners
//	POST /v1/leave    drain this node and let it go; answers when it is under way
//	POST /v1/stop     checkpoint and stop the run on all nodes; answers when under way
//
// Every request needs "Authorization: Bearer TOKEN"; one without gets a bare 401. Errors
// are {"error": "one sentence"}.
//
// # The page
//
// Below a path that is a secret is a page (node/api/page) which shows all this in a browser. It
// has a key of its own, after the # of its URL, with which every GET above is answered and
// nothing else, but for /v1/admission. Who looks over a shoulder can look on. These requests take another key, which `pnode watch` gives to the
// browser that it opens and prints nowhere, which does nothing else, and which is new each time a node is started. Port and key stay the same when a node
// comes back to its folder, so that a page left open goes on; where another program has taken
// the port both are new. Until then that program sees the key of a page that asks for its node.
//
// Requests whose Host is not a loopback address, or whose Origin is another page, get a bare
// 403, whatever they know.
//
// # Goroutines
//
// Run serves HTTP under an errgroup and returns when the server is down; net/http adds one
// goroutine a connection, which Run waits for. A reader of events that falls
// further back than its queue is cut off, so that it can never hold the node up.
//
// The package refuses to decide anything about the run, and to listen on any address but
// loopback. cmd/pnode and node/local use the client, node the server. It imports planner
// for its vocabulary, pipeline/wire to clip and decode,
// node/qrcode, and nothing else of the project.
package api
