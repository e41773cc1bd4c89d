package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// built is a program of a few bytes with what is published beside it.
func built(architecture string) program {
	return program{
		platform: platform{system: "linux", architecture: architecture}, time: noTime, version: "1.2.3", commit: "0123",
		files: []packed{
			{"pnode", 0o755, []byte("program for " + architecture)},
			{completionFolder + "/_pnode", 0o644, []byte("#compdef pnode\n")},
			{completionFolder + "/pnode", 0o644, []byte("# bash\n")},
			{completionFolder + "/pnode.fish", 0o644, []byte("# fish\n")},
			{manFolder + "/pnode.1", 0o644, []byte(".TH PNODE 1\n")},
			{licenseFile, 0o644, []byte("license\n")},
			{thirdPartyFile, 0o644, []byte("licenses\n")},
		},
	}
}

// readTar returns the files of a tar by name.
func readTar(t *testing.T, r io.Reader) map[string]*tar.Header {
	t.Helper()
	found := map[string]*tar.Header{}
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = h
	}
}

// TestEverythingIsPackedAlike: the same files give the same bytes, and each package and archive has the program.
func TestEverythingIsPackedAlike(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	pack := func() map[string][]byte {
		dir := t.TempDir()
		for _, architecture := range []string{"amd64", "arm64"} {
			b := built(architecture)
			if err := errors.Join(b.archive(dir), b.packages(dir)); err != nil {
				t.Fatal(err)
			}
		}
		windows := built("amd64")
		windows.system = "windows"
		if err := errors.Join(windows.archive(dir), writeContainer(filepath.Join(dir, containerFile), []program{built("amd64"), built("arm64")})); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			files[e.Name()] = text
		}
		return files
	}
	first, second := pack(), pack()
	for _, name := range []string{
		"pnode-linux-amd64.tar.gz", "pnode-linux-amd64.deb", "pnode-linux-amd64.rpm", "pnode-linux-arm64.tar.gz", "pnode-linux-arm64.deb",
		"pnode-linux-arm64.rpm", "pnode-windows-amd64.zip", containerFile,
	} {
		if len(first[name]) == 0 || !bytes.Equal(first[name], second[name]) {
			t.Errorf("%s: %d bytes, then %d others", name, len(first[name]), len(second[name]))
		}
	}
	if len(first) != 8 {
		t.Errorf("%d files, want 8", len(first))
	}
	unpacker, err := gzip.NewReader(bytes.NewReader(first["pnode-linux-amd64.tar.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	h := readTar(t, unpacker)["pnode-linux-amd64/pnode"]
	if h == nil || h.Mode != 0o755 || h.Uid != 0 || !h.ModTime.Equal(noTime) {
		t.Errorf("the program in the archive is %+v", h)
	}
}

// TestPackagesPutFilesInTheirPlaces: each system finds the manual, the completions and the license where it looks.
func TestPackagesPutFilesInTheirPlaces(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	for _, f := range forms {
		placed, err := f.place(built("amd64").files)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]packed{}
		for _, p := range placed {
			names[p.name] = p
		}
		want := []string{
			"usr/bin/pnode", "usr/share/man/man1/pnode.1.gz", "usr/share/bash-completion/completions/pnode",
			"usr/share/fish/vendor_completions.d/pnode.fish", f.zsh + "/_pnode", f.licensing + "/" + thirdPartyFile, "usr/lib/systemd/system/pnode.service",
		}
		for _, name := range want {
			if len(names[name].text) == 0 {
				t.Errorf("%s has no %s", f.suffix, name)
			}
		}
		unit := string(names["usr/lib/systemd/system/pnode.service"].text)
		if strings.Contains(unit, "/usr/local") || !strings.Contains(unit, "ExecStart=/usr/bin/pnode join ") || strings.Contains(unit, "cp pnode.service") {
			t.Errorf("the service is one for a program elsewhere:\n%s", unit)
		}
	}
}

// TestContainerIsWhole follows every digest of the image from its index down, as whoever loads it does.
func TestContainerIsWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), containerFile)
	if err := writeContainer(file, []program{built("amd64"), built("arm64")}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blobs := map[string][]byte{}
	for files := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			blobs[h.Name], err = io.ReadAll(files)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func(d descriptor, value any) []byte {
		t.Helper()
		hexadecimal := strings.TrimPrefix(d.Digest, "sha256:")
		blob := blobs["blobs/sha256/"+hexadecimal]
		if sum := sha256.Sum256(blob); hex.EncodeToString(sum[:]) != hexadecimal || len(blob) != d.Size {
			t.Fatalf("%s: %d bytes, want %d with this sum", d.Digest, len(blob), d.Size)
		}
		if value != nil {
			if err := json.Unmarshal(blob, value); err != nil {
				t.Fatal(err)
			}
		}
		return blob
	}
	var entry, index containerIndex
	if err := json.Unmarshal(blobs["index.json"], &entry); err != nil || len(entry.Manifests) != 1 {
		t.Fatalf("index.json: %v: %s", err, blobs["index.json"])
	}
	read(entry.Manifests[0], &index)
	if len(index.Manifests) != 2 {
		t.Fatalf("%d platforms, want 2", len(index.Manifests))
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		var manifest containerManifest
		var config containerConfig
		read(index.Manifests[i], &manifest)
		read(manifest.Config, &config)
		unpacker, err := gzip.NewReader(bytes.NewReader(read(manifest.Layers[0], nil)))
		if err != nil {
			t.Fatal(err)
		}
		root, err := io.ReadAll(unpacker)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(root); config.RootFS.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("%s: the layer is not the one that its configuration names", architecture)
		}
		files := readTar(t, bytes.NewReader(root))
		if index.Manifests[i].Platform.Architecture != architecture || config.Architecture != architecture || !bytes.Contains(root, []byte("program for "+architecture)) {
			t.Errorf("image %d is not for %s", i, architecture)
		}
		data, file := files["data/"], files["usr/local/bin/pnode"]
		if data == nil || data.Uid != containerUser || config.Config.User != "65532:65532" || file == nil || file.Mode != 0o755 || files["licenses/"+thirdPartyFile] == nil {
			t.Errorf("%s: user %s, its folder %+v, the program %+v", architecture, config.Config.User, data, file)
		}
	}
}

// TestLicensesArePassedOn: a module without a license is no part of a release.
func TestLicensesArePassedOn(t *testing.T) {
	dir := t.TempDir()
	if text, err := licensesIn(dir); err == nil {
		t.Errorf("a folder without a license gives %q", text)
	}
	for name, text := range map[string]string{"LICENSE.md": "may be copied", "NOTICE": "by someone", "main.go": "package main"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := licensesIn(dir)
	if err != nil || !strings.Contains(string(text), "may be copied") || !strings.Contains(string(text), "by someone") || strings.Contains(string(text), "package main") {
		t.Errorf("%q, %v", text, err)
	}
}
