// Package websocket carries a stream of bytes in the binary messages of a WebSocket (RFC 6455), as a net.Conn. Where a
// network lets nothing out but HTTP over TLS, through a proxy or past a firewall that looks at what it forwards, this
// gets through. Extensions, subprotocols and text are not spoken.
//
// Nothing is allocated by what a frame says of its length: payloads are read into the caller's memory.
//
// The package has no goroutines and imports nothing of the project. It is called by tcp.
package websocket
