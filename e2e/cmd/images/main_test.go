package main

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// made returns the index of an image, made of two binaries.
func made(t *testing.T) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	args := []string{"--out=" + dir, "--tag=1.2.3", "--created=1700000000", "--command=bff"}
	for _, platform := range []string{"amd64", "arm64"} {
		args = append(args, "linux/"+platform+"="+filepath.Join(dir, platform))
		if err := errors.Join(os.Mkdir(filepath.Join(dir, platform), 0o700), os.WriteFile(filepath.Join(dir, platform, "bff"), []byte(platform), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := images(t.Context(), args, func(string) string { return "" }, io.Discard); err != nil {
		t.Fatal(err)
	}
	all, err := layout.ImageIndexFromPath(filepath.Join(dir, "bff"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Errorf("not valid: %v", err)
	}
	m, err := all.IndexManifest()
	if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("got %+v, %v, want one index with its tag", m, err)
	}
	index, err := all.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestImages(t *testing.T) {
	index := made(t)
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 2 {
		t.Fatalf("got %+v, %v, want two images", m, err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		img, err := index.Image(m.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if p := m.Manifests[i].Platform; p.String() != "linux/"+arch || c.Platform().String() != p.String() {
			t.Errorf("platform %v, in the image %v, want linux/%s", p, c.Platform(), arch)
		}
		if c.Config.User != "65534:65534" || !slices.Equal(c.Config.Entrypoint, []string{"/playhead"}) {
			t.Errorf("%s: config %+v", arch, c.Config)
		}
		wantFiles(t, img, arch)
	}
}

// wantFiles wants nothing but the command, the folder of data and root certificates.
func wantFiles(t *testing.T, img v1.Image, binary string) {
	t.Helper()
	r := tar.NewReader(mutate.Extract(img))
	owners, texts := map[string]int{}, map[string]string{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		text, bad := io.ReadAll(r)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		owners[h.Name], texts[h.Name] = h.Uid, string(text)
		if h.Mode&0o022 != 0 {
			t.Errorf("%s: others may write to it, mode %o", h.Name, h.Mode)
		}
	}
	const certificates = "etc/ssl/certs/ca-certificates.crt"
	if want := map[string]int{"data": 65534, "etc": 0, "etc/ssl": 0, "etc/ssl/certs": 0, certificates: 0, "playhead": 0}; !reflect.DeepEqual(owners, want) {
		t.Errorf("owners %v, want %v", owners, want)
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM([]byte(texts[certificates])) {
		t.Error("no root certificates")
	}
	if texts["playhead"] != binary {
		t.Errorf("the command is %q, want %q", texts["playhead"], binary)
	}
}

// TestSameBytes makes the same images twice.
func TestSameBytes(t *testing.T) {
	first, err := made(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := made(t).Digest(); err != nil || again != first {
		t.Errorf("got %v and %v, %v", first, again, err)
	}
}
