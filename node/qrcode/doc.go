// Package qrcode draws a text as a QR code (ISO/IEC 18004) for a terminal, for a camera to read. It is pure, and called by cmd/pnode.
package qrcode
