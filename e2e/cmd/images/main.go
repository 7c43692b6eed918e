// Command images makes the container images of a release without a daemon. Each command gets a folder in OCI layout, with
// an image for each platform. The same binaries and arguments give the same bytes.
//
//	images --out images --tag 0.1.0 --created 1790000000 --command bff --command playhead linux/amd64=bin/amd64
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/playhead/playhead/internal/run"
)

type flags struct {
	Out      string            `required:"" help:"Folder that gets a folder for each command."`
	Tag      string            `required:"" help:"Tag of the images."`
	Created  int64             `required:"" help:"Time of creation, Unix seconds."`
	Command  []string          `required:"" help:"Commands to make images of."`
	Binaries map[string]string `arg:"" help:"Folders with the binaries, such as linux/amd64=bin."`
}

func main() { run.Main(images) }

func images(_ context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f flags
	if err := run.Parse("images", &f, args, getenv, out); err != nil {
		return err
	}
	for _, command := range f.Command {
		if err := f.write(command); err != nil {
			return fmt.Errorf("image of %s: %w", command, err)
		}
	}
	return nil
}

// write writes the layout of a command.
func (f *flags) write(command string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range slices.Sorted(maps.Keys(f.Binaries)) {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return err
		}
		binary, err := os.ReadFile(filepath.Join(f.Binaries[name], command))
		if err != nil {
			return err
		}
		img, err := f.image(*platform, binary)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	l, err := layout.Write(filepath.Join(f.Out, command), empty.Index)
	if err != nil {
		return err
	}
	return l.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": f.Tag}))
}

// image returns an image of one layer, like that of deploy/Dockerfile.
func (f *flags) image(platform v1.Platform, binary []byte) (v1.Image, error) {
	created := time.Unix(f.Created, 0).UTC()
	files, err := layer(binary, created)
	if err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	made := v1.History{Created: v1.Time{Time: created}, CreatedBy: "make release"}
	if img, err = mutate.Append(img, mutate.Addendum{Layer: l, History: made}); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, made.Created
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%[1]d", nobody), Entrypoint: []string{"/playhead"}, Volumes: map[string]struct{}{"/data": {}},
		Labels: map[string]string{"org.opencontainers.image.version": f.Tag, "org.opencontainers.image.licenses": "Apache-2.0"},
	}
	return mutate.ConfigFile(img, config)
}

// nobody is the numeric user ID of the containers.
const nobody = 65534

// layer returns the files of an image in a tar: the command, a folder for its data, and root certificates.
func layer(binary []byte, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, file := range []struct {
		tar.Header
		body []byte
	}{
		{tar.Header{Name: "data/", Mode: 0o755, Uid: nobody, Gid: nobody}, nil},
		{tar.Header{Name: "etc/", Mode: 0o755}, nil},
		{tar.Header{Name: "etc/ssl/", Mode: 0o755}, nil},
		{tar.Header{Name: "etc/ssl/certs/", Mode: 0o755}, nil},
		{tar.Header{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644}, roots()},
		{tar.Header{Name: "playhead", Mode: 0o755}, binary},
	} {
		file.ModTime, file.Size, file.Typeflag = at, int64(len(file.body)), tar.TypeReg
		if strings.HasSuffix(file.Name, "/") {
			file.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(&file.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(file.body); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

// roots returns Mozilla's root certificates, for issuers of tokens and webhooks. A file cannot tell the constraints of
// one that is trusted in part, so it is left out.
func roots() []byte {
	var buf bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&buf, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return buf.Bytes()
}
