// Package qrcode draws a text as a QR code (ISO/IEC 18004) for a camera to read: on a terminal, or as modules for a page. It is pure, and called by
// cmd/pnode and node/api.
package qrcode
