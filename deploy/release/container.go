package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"time"
)

// containerFile is an OCI image layout as a tar: skopeo and podman read it as oci-archive.
const containerFile = "pnode-container.tar"

// containerUser is a user without a name elsewhere; the folder /data is its own.
const containerUser = 65532

// Media types of https://github.com/opencontainers/image-spec, version 1.0.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string             `json:"mediaType"`
	Digest      string             `json:"digest"`
	Size        int                `json:"size"`
	Platform    *containerPlatform `json:"platform,omitempty"`
	Annotations map[string]string  `json:"annotations,omitempty"`
}

type containerPlatform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type containerIndex struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type containerManifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type containerConfig struct {
	containerPlatform
	Created time.Time `json:"created"`
	Config  struct {
		User       string              `json:"User"`
		Env        []string            `json:"Env"`
		Entrypoint []string            `json:"Entrypoint"`
		Cmd        []string            `json:"Cmd"`
		Volumes    map[string]struct{} `json:"Volumes"`
		WorkingDir string              `json:"WorkingDir"`
		Labels     map[string]string   `json:"Labels"`
		StopSignal string              `json:"StopSignal"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// layout collects the blobs of an image by their digests.
type layout struct {
	blobs map[string][]byte // hexadecimal SHA-256 -> content
}

func (l layout) add(mediaType string, blob []byte) descriptor {
	sum := sha256.Sum256(blob)
	name := hex.EncodeToString(sum[:])
	l.blobs[name] = blob
	return descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: len(blob)}
}

func (l layout) addJSON(mediaType string, value any) (descriptor, error) {
	text, err := json.Marshal(value)
	return l.add(mediaType, text), err
}

// writeContainer writes an image with one entry for each program.
func writeContainer(file string, built []program) error {
	l := layout{map[string][]byte{}}
	index := containerIndex{SchemaVersion: 2, MediaType: typeIndex}
	for _, b := range built {
		d, err := l.addImage(b)
		if err != nil {
			return err
		}
		index.Manifests = append(index.Manifests, d)
	}
	whole, err := l.addJSON(typeIndex, index)
	if err != nil {
		return err
	}
	// The tag, and the name under which podman and containerd keep it.
	whole.Annotations = map[string]string{"org.opencontainers.image.ref.name": "latest", "io.containerd.image.name": "localhost/pnode:latest"}
	entry, err := json.Marshal(containerIndex{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{whole}})
	if err != nil {
		return err
	}
	files := []packed{{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", 0o644, entry}}
	var names []string
	for name := range l.blobs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		files = append(files, packed{"blobs/sha256/" + name, 0o644, l.blobs[name]})
	}
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(w, files, built[0].time), w.Close())
}

// addImage adds the image of one platform: the program, its licenses and a folder for runs.
func (l layout) addImage(b program) (descriptor, error) {
	root, err := b.containerRoot()
	if err != nil {
		return descriptor{}, err
	}
	layer, err := gzipped(root)
	if err != nil {
		return descriptor{}, err
	}
	c := containerConfig{containerPlatform: containerPlatform{b.architecture, b.system}, Created: b.time}
	c.Config.User = "65532:65532"
	c.Config.Env = []string{"PATH=/usr/local/bin", "HOME=/data"}
	c.Config.Entrypoint, c.Config.Cmd = []string{"/usr/local/bin/pnode"}, []string{"help"}
	c.Config.Volumes, c.Config.WorkingDir, c.Config.StopSignal = map[string]struct{}{"/data": {}}, "/data", "SIGTERM"
	c.Config.Labels = map[string]string{
		"org.opencontainers.image.title": "pnode", "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version": b.version, "org.opencontainers.image.revision": b.commit,
	}
	sum := sha256.Sum256(root)
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{"sha256:" + hex.EncodeToString(sum[:])}
	config, err := l.addJSON(typeConfig, c)
	if err != nil {
		return descriptor{}, err
	}
	d, err := l.addJSON(typeManifest, containerManifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: config, Layers: []descriptor{l.add(typeLayer, layer)},
	})
	d.Platform = &c.containerPlatform
	return d, err
}

// containerRoot returns the root folder as a tar. Nothing in it is written to but /data and /tmp, which may be mounts.
func (b program) containerRoot() ([]byte, error) {
	var root bytes.Buffer
	t := tar.NewWriter(&root)
	user := []byte("root:x:0:0:root:/:/none\npnode:x:65532:65532:pnode:/data:/none\n")
	group := []byte("root:x:0:\npnode:x:65532:\n")
	entries := []struct {
		header tar.Header
		text   []byte
	}{
		{tar.Header{Name: "data/", Mode: 0o700, Uid: containerUser, Gid: containerUser, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "etc/", Mode: 0o755, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "etc/group", Mode: 0o644}, group},
		{tar.Header{Name: "etc/passwd", Mode: 0o644}, user},
		{tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "usr/", Mode: 0o755, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "usr/local/", Mode: 0o755, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "usr/local/bin/", Mode: 0o755, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "usr/local/bin/pnode", Mode: 0o755}, b.files[0].text},
		{tar.Header{Name: "licenses/", Mode: 0o755, Typeflag: tar.TypeDir}, nil},
	}
	for _, f := range b.files {
		if f.name == licenseFile || f.name == thirdPartyFile {
			entries = append(entries, struct {
				header tar.Header
				text   []byte
			}{tar.Header{Name: "licenses/" + f.name, Mode: 0o644}, f.text})
		}
	}
	for _, e := range entries {
		if err := writeEntry(t, &e.header, e.text, b.time); err != nil {
			return nil, err
		}
	}
	err := t.Close()
	return root.Bytes(), err
}
