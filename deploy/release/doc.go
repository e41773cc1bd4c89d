// Command release builds the files that users get:
//
//	go run ./deploy/release -out dist
//
// For each platform it makes an archive with the program, its manual and the licenses of what is in it, and
// the list of its modules (SBOM, CycloneDX); for Linux also packages (.deb, .rpm), and a container of all of its
// platforms. install.sh and SHA256SUMS are about all files together. docs/release.md has the whole way, with the signature
// and how two people compare what they built.
//
// A program for Linux is a static one followed by one that opens drivers, see package image; for
// other systems it is the output of `go build`.
//
// The same commit gives the same bytes in any folder of any machine: build.go fixes what could differ, and whatever is packed
// has the time of the commit.
package main
