package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// form is a kind of package for Linux with where its systems keep things.
type form struct {
	suffix         string
	packager       nfpm.Packager
	zsh, licensing string
}

var forms = []form{
	{".deb", deb.Default, "usr/share/zsh/vendor-completions", "usr/share/doc/pnode"},
	{".rpm", rpm.DefaultRPM, "usr/share/zsh/site-functions", "usr/share/licenses/pnode"},
}

// packages writes a package of each form.
func (b program) packages(out string) error {
	for _, f := range forms {
		if err := b.pack(f, out); err != nil {
			return err
		}
	}
	return nil
}

func (b program) pack(f form, out string) error {
	work, err := os.MkdirTemp("", "pnode-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	scripts := filepath.Join("deploy", "release", "package")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "pnode", Arch: b.architecture, Platform: b.system, Version: b.version, VersionSchema: "semver",
		Section: "science", Maintainer: "pnode maintainers", License: "Apache-2.0", MTime: b.time, DisableGlobbing: true,
		Description: "Train one language model on many machines\n" +
			"pools unlike computers behind slow links into one training run of a language\nmodel. One command starts a run, another joins it, and no server keeps it alive.",
		Overridables: nfpm.Overridables{
			Umask:   0o022,
			Scripts: nfpm.Scripts{PostInstall: filepath.Join(scripts, "installed"), PreRemove: filepath.Join(scripts, "removes"), PostRemove: filepath.Join(scripts, "removed")},
			RPM:     nfpm.RPM{BuildHost: "reproducible", Group: "Applications/Engineering", Summary: "Train one language model on many machines"},
		},
	})
	placed, err := f.place(b.files)
	if err != nil {
		return err
	}
	for _, p := range placed {
		source := filepath.Join(work, filepath.FromSlash(p.name))
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(source, p.text, 0o600); err != nil {
			return err
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: source, Destination: "/" + p.name, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: p.mode, MTime: b.time},
		})
	}
	w, err := os.Create(filepath.Join(out, b.name()+f.suffix))
	if err != nil {
		return err
	}
	return errors.Join(f.packager.Package(info, w), w.Close())
}

// place returns the files of an archive where the system looks for them, and the service.
func (f form) place(archived []packed) ([]packed, error) {
	var placed []packed
	for _, p := range archived {
		base := path.Base(p.name)
		switch dir := path.Dir(p.name); {
		case base == "pnode" && dir == ".":
			p.name = "usr/bin/pnode"
		case dir == manFolder:
			text, err := gzipped(p.text)
			if err != nil {
				return nil, err
			}
			p.name, p.text = "usr/share/man/man1/"+base+".gz", text
		case base == completions["zsh"]:
			p.name = path.Join(f.zsh, base)
		case base == completions["fish"]:
			p.name = "usr/share/fish/vendor_completions.d/" + base
		case base == completions["bash"]:
			p.name = "usr/share/bash-completion/completions/" + base
		case base == licenseFile && f.suffix == ".deb":
			p.name = path.Join(f.licensing, "copyright") // where Debian looks for it
		case base == licenseFile || base == thirdPartyFile:
			p.name = path.Join(f.licensing, base)
		default:
			p.name = "usr/share/doc/pnode/" + base
		}
		placed = append(placed, p)
	}
	unit, err := service()
	return append(placed, packed{"usr/lib/systemd/system/pnode.service", 0o644, unit}), err
}

// service returns the unit of deploy/service for a program that a package put in its place.
func service() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join("deploy", "service", "pnode.service"))
	if err != nil {
		return nil, err
	}
	unit := strings.ReplaceAll(string(text), "/usr/local/bin/pnode", "/usr/bin/pnode")
	unit = strings.ReplaceAll(unit, "cp pnode.service /etc/systemd/system/ && ", "")
	return []byte(unit), nil
}

// gzipped returns a text as manual pages are kept. Neither name nor time is in it.
func gzipped(text []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = io.Copy(w, bytes.NewReader(text))
		err = errors.Join(err, w.Close())
	}
	return b.Bytes(), err
}
