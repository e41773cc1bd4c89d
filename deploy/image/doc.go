// Package image lets one file be two programs: one that needs nothing of the system but the
// kernel, and one that opens drivers.
//
// GPU drivers are shared libraries, and opening one takes the loader of the system's C library
// (glibc's ld-linux): a program that can is started by that loader, and fails where it is not
// there, as in an empty container or on musl. So the file of a release for Linux is a static
// program with a second one, the image, compressed behind its end:
//
//	static program | image, zstd | footer: loader's path, compressed size, magic
//
// Enter replaces the static program by the image where the loader is there and the image runs;
// the rest of the file is never executed then. That takes 0.2 s, mostly to decompress, and the
// image a quarter of the file's 47 MB. Everywhere else the static program goes on. On
// other systems, and for a program built by `go build`, there is no image and nothing to do.
//
// cmd/pnode calls Enter and Executable, deploy/release Append.
package image
