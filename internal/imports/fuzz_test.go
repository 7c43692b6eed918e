package imports_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playhead/playhead/internal/imports"
)

// FuzzRead reads any bytes, by form and by a map. Items are numbered, valid, and no more than lines and bytes allow.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*")
	for _, path := range files {
		if b, err := os.ReadFile(path); err == nil && !strings.HasSuffix(path, ".golden") {
			f.Add(b)
		}
	}
	for _, text := range []string{header + "u,1,1790000000,\"t\nu,2,1790000000,t\"\n", gzipped(header), zstded(header), zipped("a.csv", header), "[[", `{"actions":[{}]}x`} {
		f.Add([]byte(text))
	}
	m, err := imports.ParseMap(mapText)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, o := range []imports.Options{{Now: now, MaxBytes: 1 << 20}, {Now: now, Map: m, MaxBytes: 1 << 20}} {
			n := int64(0)
			for i, err := range imports.FromReader(o, "f", bytes.NewReader(b)).Items(t.Context()) {
				if err != nil {
					break
				}
				if n++; i.N != n || n > 1<<21 {
					t.Fatalf("item %d has the number %d", n, i.N)
				}
				e := i.Event
				if e.Key.UID == "" {
					e.Key.UID = "-"
				}
				if i.Outcome == imports.Read && e.Validate() != nil || i.Outcome != imports.Read && i.Reason == "" {
					t.Fatalf("%+v: %v", i, e.Validate())
				}
			}
		}
	})
}

// FuzzMap parses any map, and reads a row by it.
func FuzzMap(f *testing.F) {
	f.Add(mapText, "u,1,2,3\n")
	f.Add("object=1,time=2:02.01.2006 15:04,zone=Europe/Berlin,played=3:hms,type:=7", "x;28.03.2026 02:30;1:02:03")
	f.Fuzz(func(t *testing.T, text, file string) {
		m, err := imports.ParseMap(text)
		if err != nil {
			return
		}
		for range imports.FromReader(imports.Options{Map: m, Now: now}, "f", strings.NewReader(file)).Items(t.Context()) { //nolint:errcheck // any file may fail
		}
	})
}
