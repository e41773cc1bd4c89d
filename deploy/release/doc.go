// Command release builds the files that users get:
//
//	go run ./deploy/release -out dist
//
// For each platform it makes a program, and the list of the modules in it (SBOM, CycloneDX); for all
// files together SHA256SUMS. docs/release.md has the whole way, with the signature and how two people
// compare what they built.
//
// A program for Linux is a static one followed by one that opens drivers, see package image; for
// other systems it is the output of `go build`.
//
// The same commit gives the same bytes in any folder of any machine: build.go fixes what could differ.
package main
