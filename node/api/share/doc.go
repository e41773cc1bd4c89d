// Package share shows the page of a node to machines of the local network, which can look at it and do nothing else.
//
// # Nouns
//
//   - Node: what is shown; api.View is one, which has no more rights than the page has.
//   - Server: answers behind a link that holds a secret, over TLS with a certificate of its own unless told otherwise.
//   - budget: what each address may still ask for.
//   - memo: the node's newest answer, so that it is asked once a second however many look.
//
// # What is answered
//
// The page's files stand below a path that is a secret; its requests carry the key after the # of the link, which browsers send nowhere.
// Both are random, compared in constant time, new with each Server, and never logged. All else gets a bare 404, and 403 where the key, the
// name of this machine or the method is wrong: only GET is answered. Who asks too often gets a bare 429. What is no request of HTTP, or has
// headers that are too long, gets net/http's own words, which tell nothing of the node. Invites, newcomers, checkpoints and metrics are not listed.
// Of what is shown, errors of this machine are left out, and from all texts folders, files and addresses of machines: one function cleans each field.
//
// The package refuses to listen on an address that other networks lead to. It imports node/api and swarm/listen, and is called by cmd/pnode.
package share
