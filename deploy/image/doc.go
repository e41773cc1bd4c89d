// Package image lets one file be two programs: one that needs nothing of the system but the
// kernel, and one that opens drivers.
//
// GPU drivers are shared libraries. A program that opens one is started by the loader of the system's
// C library (glibc's ld-linux) and fails where there is none, as in an empty container or on musl.
// So a release for Linux is a static program with a second one, the image, compressed after its end:
//
//	static program | image, zstd | footer: loader's path, compressed size, magic
//
// Enter replaces the static program by the image if the loader exists and the image runs. That takes
// 0.3 s, mostly to decompress, and 48 MB of memory, where the image lies as long as it runs. It is
// 20 MB of the file's 72 MB (linux/amd64). Otherwise the static program goes on. Other systems, and
// programs built by `go build`, have no image.
//
// cmd/pnode calls Enter and Executable, deploy/release Append.
package image
