package imports_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playhead/playhead/internal/imports"
)

// BenchmarkRead reads tables and JSON, in megabytes per second of processor time.
func BenchmarkRead(b *testing.B) {
	files := map[string]string{"map": manyRows()}
	for name, path := range map[string]string{
		"Netflix": "netflix-long.csv", "YouTube": "youtube.json", "HTML": "youtube.html", "Spotify": "spotify-extended.json", "Trakt": "trakt.json",
		"ListenBrainz": "listenbrainz.jsonl", "log": "scrobbler.log", "Jellyfin": "jellyfin.tsv", "Yamtrack": "yamtrack.csv", "FreeTube": "freetube.db",
	} {
		files[name] = repeated(b, "testdata/"+path)
	}
	for name, file := range files {
		b.Run(name, func(b *testing.B) {
			o := imports.Options{Now: now}
			if name == "map" {
				o.Map, _ = imports.ParseMap(mapText)
			}
			before := spent(b)
			for b.Loop() {
				for _, err := range imports.FromReader(o, "f", strings.NewReader(file)).Items(b.Context()) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(len(file)*b.N)/1e6/(spent(b)-before).Seconds(), "MB/cpu-s")
		})
	}
}

// spent returns the processor time of this process.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func manyRows() string {
	var text strings.Builder
	text.WriteString(header)
	for i := range 50_000 {
		fmt.Fprintf(&text, "user-%d,film-%d,%d,The title of %d\n", i%1000, i, 1790000000+i*7, i)
	}
	return text.String()
}

// repeated returns a file with its rows many times.
func repeated(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	text := strings.TrimSpace(string(b))
	switch {
	case strings.HasSuffix(path, ".json"):
		return "[" + strings.TrimSuffix(strings.Repeat(text[1:len(text)-1]+",", 1000), ",") + "]"
	case strings.HasSuffix(path, ".csv"):
		head, rows, _ := strings.Cut(text, "\n")
		return head + "\n" + strings.Repeat(rows+"\n", 1000)
	}
	return strings.Repeat(text+"\n", 1000)
}

// TestMemory reads a file of 50,000 rows in the memory of a few.
func TestMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peak, n := uint64(0), 0
	for i, err := range imports.FromReader(mapped(t, mapText), "f", strings.NewReader(gzipped(manyRows()))).Items(t.Context()) {
		if err != nil || i.Outcome != imports.Read {
			t.Fatal(i, err)
		}
		if n++; n%10_000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&after)
			peak = max(peak, after.HeapAlloc)
		}
	}
	if held := int64(peak) - int64(before.HeapAlloc); n != 50_000 || held > 16<<20 {
		t.Errorf("%d rows, %d bytes held", n, held)
	}
}
