package imports_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"

	"github.com/playhead/playhead/internal/imports"
)

const mapText = "user=user,object=object,time=time:s,title=title"

func mapped(t *testing.T, text string) imports.Options {
	t.Helper()
	m, err := imports.ParseMap(text)
	if err != nil {
		t.Fatal(err)
	}
	return imports.Options{Map: m, Now: now}
}

// brief returns the outcomes of a source: ids that were read, and places and reasons of the others.
func brief(t *testing.T, s *imports.Source) (out []string) {
	t.Helper()
	for i, err := range s.Items(t.Context()) {
		switch {
		case err != nil:
			out = append(out, "error: "+err.Error())
		case i.Outcome == imports.Read:
			out = append(out, i.Event.Key.UID+"/"+i.Event.Key.Object.ID)
		default:
			out = append(out, strings.TrimPrefix(i.Place.String()+" "+i.Reason, "f"))
		}
	}
	return out
}

func wantBrief(t *testing.T, s *imports.Source, want ...string) {
	t.Helper()
	got := brief(t, s)
	if len(got) != len(want) {
		t.Errorf("got %q, want %q", got, want)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("item %d: got %q, want %q", i, got[i], want[i])
		}
	}
}

const header = "user,object,time,title\n"

// TestDamagedTables has a file of each kind of damage of the Pollock benchmark for CSV readers, and more. No row is
// misread silently.
func TestDamagedTables(t *testing.T) {
	good := func(n int) string { return fmt.Sprintf("u,%d,1790000000,t%d\n", n, n) }
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"no last line end":          {header + "u,1,1790000000,t", []string{"u/1"}},
		"two last line ends":        {header + good(1) + "\n\n", []string{"u/1"}},
		"only a header":             {header, nil},
		"empty lines":               {"\n\n" + header + "\n" + good(1), []string{"u/1"}},
		"CRLF":                      {strings.ReplaceAll(header+good(1)+good(2), "\n", "\r\n"), []string{"u/1", "u/2"}},
		"CR":                        {strings.ReplaceAll(header+good(1)+good(2), "\n", "\r"), []string{"u/1", "u/2"}},
		"LF and CRLF":               {header + "u,1,1790000000,t\r\n" + good(2), []string{"u/1", "u/2"}},
		"CR among LF":               {header + "u,1,1790000000,t\ru,2,1790000000,t\n" + good(3), []string{":2", "u/3"}},
		"a row of fewer columns":    {header + "u,1,1790000000\n" + good(2), []string{":2 3 columns, want 4", "u/2"}},
		"a row of more columns":     {header + "u,1,1790000000,t,x\n" + good(2), []string{":2 5 columns, want 4", "u/2"}},
		"a row of other delimiter":  {header + "u;1;1790000000;t\n" + good(2), []string{":2 1 columns, want 4", "u/2"}},
		"a row with spaces":         {header + "u, 1, 1790000000 , t\n", []string{"u/1"}},
		"a row with spaced quotes":  {header + "u, \"1\",1790000000,t\n" + good(2), []string{":2:4 a quote inside", "u/2"}},
		"single quotes":             {header + "'u','1','1790000000','t'\n" + good(2), []string{":2:1 user: single quotes", "u/2"}},
		"single quotes, delimiter":  {header + "'u','a,b',1790000000,t\n" + good(2), []string{":2 5 columns", "u/2"}},
		"escapes by backslashes":    {header + `u,1,1790000000,"say \"x\""` + "\n" + good(2), []string{":2:23 text after a closing quote", "u/2"}},
		"a bare escape":             {header + `u,a\,b,1790000000,t` + "\n" + good(2), []string{":2 5 columns", "u/2"}},
		"a quote not opened":        {header + "u,1,1790000000,t\"\n" + good(2), []string{":2", "u/2"}},
		"a quote not closed":        {header + "u,1,1790000000,\"t\n" + good(2) + good(3), []string{":2:16 a quote is not closed", "u/2", "u/3"}},
		"two quotes not closed":     {header + "u,1,1790000000,\"t\n" + good(2) + "u,3,1790000000,\"t\n" + good(4), []string{":2", "u/2", ":4", "u/4"}},
		"rows inside of quotes":     {header + "u,1,1790000000,\"t\n" + good(2) + "u,3,1790000000,t\"\n", []string{":2", "u/2", ":4"}},
		"a line break in quotes":    {header + "u,1,1790000000,\"t\nt\"\n" + good(2), []string{":2:16 title: a line break", "u/2"}},
		"a preamble":                {"Report of today\n" + header + good(1), []string{"error: read f: no known form: map: no column"}},
		"a second header":           {header + "text,text,number,text\n" + good(1), []string{":2:11 time: \"number\"", "u/1"}},
		"a second table":            {header + good(1) + "\nname,age\nx,5\n", []string{"u/1", ":4 2 columns", ":5 2 columns"}},
		"a column twice":            {"user,object,time,title,time\n" + "u,1,1790000000,t,5\n", []string{"error: read f: no known form: map: column \"time\" is there 2 times"}},
		"no column":                 {"user,item,time,title\n" + good(1), []string{"error: read f: no known form: map: no column \"object\"; the file has user, item, time, title"}},
		"other case of a header":    {"User,OBJECT,Time,Title\n" + good(1), []string{"u/1"}},
		"a time that is none":       {header + "u,1,soon,t\n" + good(2), []string{`:2:5 time: "soon" is not a number of s`, "u/2"}},
		"a time in milliseconds":    {header + "u,1,1790000000000,t\n" + good(2), []string{":2:5 time: \"1790000000000\" is year 58692; another unit", "u/2"}},
		"a time to come":            {header + "u,1,1990000000,t\n" + good(2), []string{":2 time: 2033-01-22T09:46:40Z is in the future", "u/2"}},
		"a huge number":             {header + "u,1,99999999999999999999,t\n" + good(2), []string{":2:5 time", "u/2"}},
		"no object":                 {header + "u,,1790000000,t\n" + good(2), []string{":2:3 object: missing", "u/2"}},
		"no value of a database":    {header + "\\N,1,1790000000,t\nu,NULL,1790000000,t\n" + good(2), []string{":2:1 user: missing", ":3:3 object: missing", "u/2"}},
		"a long object":             {header + "u," + strings.Repeat("x", 5000) + ",1790000000,t\n", []string{"u/xxx"}},
		"a control character":       {header + "u,a\x07b,1790000000,t\n" + good(2), []string{":2 object.id", "u/2"}},
		"invalid UTF-8":             {header + "u,a\xffb,1790000000,t\n" + good(2), []string{":2 invalid UTF-8", "u/2"}},
		"invalid UTF-8, unmapped":   {"user,object,time,title,x\nu,1,1790000000,t,\xe9\nu,2,1790000000,t,\n", []string{":2 invalid UTF-8", "u/2"}},
		"a zero byte":               {header + "u,1\x00,1790000000,t\n" + good(2), []string{":2 a zero byte", "u/2"}},
		"a line of 10 MB":           {header + "u,1,1790000000," + strings.Repeat("x", 10<<20) + "\n" + good(2), []string{":2 longer than 1 MiB", "u/2"}},
		"a field of 10 MB":          {header + "u,1,1790000000,\"" + strings.Repeat(strings.Repeat("x", 5000)+"\n", 2<<10) + "\"\n" + good(2), append([]string{":2:16 a quote is not closed"}, "…")},
		"semicolons":                {strings.ReplaceAll(header+good(1)+good(2), ",", ";"), []string{"u/1", "u/2"}},
		"tabs":                      {strings.ReplaceAll(header+good(1)+good(2), ",", "\t"), []string{"u/1", "u/2"}},
		"bars":                      {strings.ReplaceAll(header+good(1)+good(2), ",", "|"), []string{"u/1", "u/2"}},
		"semicolons, commas within": {"user;object;time;title\nu;1;1790000000;a,b\nu;2;1790000000;c,d\n", []string{"u/1", "u/2"}},
		"duplicates":                {header + good(1) + good(1), []string{"u/1", "u/1"}},
		"empty":                     {"", []string{"error: read f: no known form: the file is empty"}},
		"spaces":                    {" \n \n", []string{"error: read f: no known form: the file is empty"}},
		"no text":                   {"\x00\x01\x02\xff\xfe", []string{"error: read f: no known form: the file is neither text nor an archive"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := imports.FromReader(mapped(t, mapText), "f", strings.NewReader(tt.file))
			if n := len(tt.want); n > 0 && tt.want[n-1] == "…" {
				got := brief(t, s)
				if !strings.Contains(got[0], tt.want[0]) || got[len(got)-1] != "u/2" {
					t.Errorf("got %q … %q, want %q first", got[0], got[len(got)-1], tt.want)
				}
				return
			}
			wantBrief(t, s, tt.want...)
		})
	}
}

// TestMapsByNumber reads a table without names, with a header or without.
func TestMapsByNumber(t *testing.T) {
	o := func(text string) imports.Options { return mapped(t, text) }
	for name, tt := range map[string]struct {
		text, file string
		want       []string
	}{
		"no header":        {"user=1,object=2,time=3:unix", "u,1,1790000000\nu,2,1790000000\n", []string{"u/1", "u/2"}},
		"header":           {"user=1,object=2,time=3:s", "a,b,c\nu,2,1790000000\n", []string{":1 the header", "u/2"}},
		"first row is bad": {"user=1,object=2,time=3:s", "u,1,1x\nu,2,1790000000\n", []string{":1:5 time", "u/2"}},
		"no such column":   {"user=1,object=2,time=4:s", "u,1,1790000000\n", []string{"error: read f: no known form: map: no column 4; the file has 3"}},
		"constants":        {"user:=ann,object=1,time=2:s,type:=7", "5,1790000000\n", []string{"ann/5"}},
		"zone":             {"object=1,time=2:02.01.2006 15:04,zone=Europe/Berlin", "5;28.03.2026 02:30\n6;29.03.2026 02:30\n7;25.10.2026 02:30\n8;25.10.2026 03:30\n9;25.10.2026 01:59\n", []string{"/5", ":2:3 time: 2026-03-29 02:30:00 does not exist", ":3:3 time: 2026-10-25 02:30:00 is there twice", "/8", "/9"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantBrief(t, imports.FromReader(o(tt.text), "f", strings.NewReader(tt.file)), tt.want...)
		})
	}
}

// TestEncodings reads one table in several encodings and packings.
func TestEncodings(t *testing.T) {
	text := header + "ü,1,1790000000,日本\nu,2,1790000000,t\n"
	wide := func(order func(b []byte, c uint16) []byte, mark bool) string {
		var b []byte
		if mark {
			b = order(b, 0xfeff)
		}
		for _, c := range utf16.Encode([]rune(text)) {
			b = order(b, c)
		}
		return string(b)
	}
	little := func(b []byte, c uint16) []byte { return append(b, byte(c), byte(c>>8)) }
	big := func(b []byte, c uint16) []byte { return append(b, byte(c>>8), byte(c)) }
	for name, file := range map[string]string{
		"UTF-8": text, "UTF-8 with a mark": "\ufeff" + text,
		"UTF-16LE": wide(little, true), "UTF-16BE": wide(big, true), "UTF-16LE without a mark": wide(little, false), "UTF-16BE without a mark": wide(big, false),
		"gzip": gzipped(text), "zstd": zstded(text), "gzip in gzip": gzipped(gzipped(text)), "zip": zipped("a/b.csv", text), "zstd in zip": zipped("a/b.csv.zst", zstded(text)),
	} {
		t.Run(name, func(t *testing.T) {
			wantBrief(t, imports.FromReader(mapped(t, mapText), "f", strings.NewReader(file)), "ü/1", "u/2")
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			wantBrief(t, imports.Open(mapped(t, mapText), path), "ü/1", "u/2")
		})
	}
	lost := strings.Replace(wide(little, true), "u\x00,\x002", "\x00\xd8,\x002", 1) // half a pair
	wantBrief(t, imports.FromReader(mapped(t, mapText), "f", strings.NewReader(lost)), "ü/1", ":3 invalid UTF-16")
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

func zstded(text string) string {
	w, _ := zstd.NewWriter(nil)
	return string(w.EncodeAll([]byte(text), nil))
}

// zipped returns an archive of names and texts in turn.
func zipped(files ...string) string {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, _ := w.Create(files[i])
		_, _ = io.WriteString(f, files[i+1])
	}
	_ = w.Close()
	return b.String()
}

// zeros is an endless table.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	return copy(p, bytes.Repeat(append(bytes.Repeat([]byte("0"), 4095), '\n'), len(p)/4096+1)), nil
}

// TestDamagedArchives checks that one bad file does not stop the others, and that bombs end.
func TestDamagedArchives(t *testing.T) {
	text := header + "u,1,1790000000,t\n"
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, "u,%d,%d,%x\n", i, 1790000000+i*7, i*i*i)
	}
	half := gzipped(header + many.String())
	got := brief(t, imports.FromReader(mapped(t, mapText), "f", strings.NewReader(half[:len(half)/2])))
	if n := len(got); n < 1000 || !strings.Contains(got[n-1], "the rest of the file was not read: the archive is cut off") || got[0] != "u/0" {
		t.Errorf("half a gzip: %d items, the last %q", n, got[n-1])
	}
	whole := zipped("a.csv", text)
	trace := "user_id,video_id,time_ms,play_time_ms,duration_ms\n1,22,1790000000000,7000,10000\n"
	for name, tt := range map[string]struct {
		file string
		o    imports.Options
		want []string
	}{
		"half a zip":        {whole[:len(whole)-30], mapped(t, mapText), []string{"zip: no list of files", "error: read 0 files"}},
		"names that leave":  {zipped("../../a.csv", text, "b.csv", text, "/c.csv", text), mapped(t, mapText), []string{"leads out of the archive", "leads out of the archive", "u/1"}},
		"archives within":   {zipped("a.zip", zipped("b.zip", zipped("c.zip", zipped("d.zip", text)))), mapped(t, mapText), []string{"archives inside of archives", "error"}},
		"one is bad":        {zipped("a.csv.gz", gzipped(text)[:15], "b.csv", text), mapped(t, mapText), []string{"cut off", "u/1"}},
		"others are passed": {zipped("a.txt", "hello", "b.csv", trace, "c.json", "{}", "d.json", `[{"plays":1}]`), imports.Options{Now: now}, []string{"1/22"}},
		"parts in order":    {zipped("w-10.csv", strings.Replace(trace, "22", "10", 1), "w-9.csv", strings.Replace(trace, "22", "9", 1)), imports.Options{Now: now}, []string{"1/9", "1/10"}},
		"none is known":     {zipped("a.txt", "hello", "c.json", "{}"), imports.Options{Now: now}, []string{"error: read 2 files: no known form in any of them; known are .scrobbler.log"}},
		"too large":         {zipped("a.csv", header+many.String()), imports.Options{Now: now, Map: mapped(t, mapText).Map, MaxBytes: 5000}, []string{"more than 5000 bytes", "error"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantBrief(t, imports.FromReader(tt.o, "f", strings.NewReader(tt.file)), tt.want...)
		})
	}
	t.Run("bomb", func(t *testing.T) {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.CopyN(w, zeros{}, 70<<20)
		_ = w.Close()
		last := imports.Item{}
		for i, err := range imports.FromReader(mapped(t, "object=1,time=1:s"), "f", &b).Items(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			last = i
		}
		if !strings.Contains(last.Reason, "unpacks to more than allowed") {
			t.Errorf("the last item is %+v", last)
		}
	})
}

// TestPassedOver rejects a named file of no known form, and one that the map does not fit, wherever it is. Other files of
// a directory or an archive, and empty ones, are no rows.
func TestPassedOver(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	row := "u,1,1790000000,t\n"
	good, renamed, empty := path("d/a.csv", header+row), path("d/b.csv", strings.Replace(header, "object", "item", 1)+row), path("d/c.csv", "")
	trace := path("e/a.csv", "user_id,video_id,time_ms,play_time_ms,duration_ms\n1,22,1790000000000,7000,10000\n")
	other, image := path("e/b.csv", "a,b\n1,2\n"), path("e/c.png", "\x00\x01\x02\xff\xfe")
	packed := path("z.zip", zipped("a.csv", header+row, "b.csv", "a,b\n1,2\n", "c.png", "\x00\x01\x02\xff\xfe"))
	lacks := `b.csv the file was not read: map: no column "object"; the file has user, item, time, title`
	for name, tt := range map[string]struct {
		o     imports.Options
		paths []string
		want  []string
	}{
		"columns renamed":  {mapped(t, mapText), []string{renamed, good}, []string{"u/1", lacks}},
		"in a directory":   {mapped(t, mapText), []string{filepath.Dir(good)}, []string{"u/1", lacks}},
		"in an archive":    {mapped(t, mapText), []string{packed}, []string{"u/1", `b.csv the file was not read: map: no column "user"`}},
		"empty":            {mapped(t, mapText), []string{empty, good}, []string{"u/1"}},
		"no form":          {imports.Options{Now: now}, []string{trace, other, image}, []string{"1/22", "b.csv the file was not read: its columns are a, b", "c.png the file was not read: the file is neither text nor an archive"}},
		"no form, nearby":  {imports.Options{Now: now}, []string{filepath.Dir(trace)}, []string{"1/22"}},
		"all without form": {imports.Options{Now: now}, []string{other, image}, []string{"error: read 2 files: no known form in any of them"}},
	} {
		t.Run(name, func(t *testing.T) { wantBrief(t, imports.Open(tt.o, tt.paths...), tt.want...) })
	}
}

// TestConsumed tells how much of a large file in an archive was read.
func TestConsumed(t *testing.T) {
	var rows strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&rows, "u,%x,1790000000,%x\n", sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)}), i)
	}
	path := filepath.Join(t.TempDir(), "f.zip")
	if err := os.WriteFile(path, []byte(zipped("a.csv", header+rows.String())), 0o600); err != nil {
		t.Fatal(err)
	}
	about, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s, n, share := imports.Open(mapped(t, mapText), path), 0, 0.0
	for _, err := range s.Items(t.Context()) {
		if n++; err != nil {
			t.Fatal(err)
		}
		if n == 50_000 {
			share = float64(s.Consumed()) / float64(about.Size())
		}
	}
	if end := float64(s.Consumed()) / float64(about.Size()); n != 100_000 || share < 0.4 || share > 0.7 || end < 0.95 || end > 1.1 {
		t.Errorf("%d rows, %.2f of the file after half of them, %.2f at the end", n, share, end)
	}
}

// TestDamagedJSON checks arrays and lines.
func TestDamagedJSON(t *testing.T) {
	one := `{"ts":"2026-10-01T20:00:00Z","ms_played":200000,"spotify_track_uri":"spotify:track:1"}`
	two := strings.Replace(one, "track:1", "track:2", 1)
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"something after the end": {"[" + one + "," + two + "]}]", []string{"track:1", "track:2", ":1:176 the rest of the file was not read: something follows the end"}},
		"cut off":                 {"[" + one + "," + two[:50], []string{"track:1", "the file ends in the middle"}},
		"cut off between":         {"[" + one + ",", []string{"track:1", "the file ends in the middle"}},
		"an element is damaged":   {"[" + one + ",\n{\"ts\":5}," + two + "]", []string{"track:1", ":2:1 ", "track:2"}},
		"a syntax error":          {"[" + one + ",\n{\"ts\" 5}," + two + "]", []string{"track:1", "the rest of the file was not read: not JSON"}},
		"no object":               {"[" + one + ",7," + two + "]", []string{"track:1", "not a JSON object", "track:2"}},
		"a field twice":           {"[" + one + ",{\"ts\":\"x\",\"ts\":\"y\"}," + two + "]", []string{"track:1", "duplicate", "track:2"}},
		"invalid UTF-8":           {"[" + one + "," + strings.Replace(one, "track:1", "\xff", 1) + "," + two + "]", []string{"track:1", "invalid UTF-8", "track:2"}},
		"a huge element":          {"[" + one + ",{\"x\":\"" + strings.Repeat("x", 10<<20) + "\"}," + two + "]", []string{"track:1", "an object is longer than 1 MiB"}},
		"lines":                   {one + "\n" + one[:40] + "\n[]\n\n" + two, []string{"track:1", ":2 not JSON", ":3 not a JSON object", "track:2"}},
		"a huge line":             {one + "\n{\"x\":\"" + strings.Repeat("x", 10<<20) + "\"}\n" + two, []string{"track:1", ":2 longer than 1 MiB", "track:2"}},
		"the first line is bad":   {one[:40] + "\n" + two, []string{":1 not JSON", "track:2"}},
		"no known fields":         {`[{"a":1}]`, []string{"error: read f: no known form: its fields are a. known are"}},
		"an empty array":          {`[]`, []string{"error: read f: no known form"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantBrief(t, imports.FromReader(imports.Options{Now: now}, "f", strings.NewReader(tt.file)), tt.want...)
		})
	}
	o := mapped(t, "user=who,object=what.id,time=at:iso")
	wantBrief(t, imports.FromReader(o, "f", strings.NewReader(`{"who":"u","what":{"id":7},"at":"2026-10-01"}`+"\n"+`{"who":"u","what":7,"at":"2026-10-01"}`)), "u/7", ":2 object: want an object")
}

// TestDateOrder reads dates of digits in the only possible order, or asks.
func TestDateOrder(t *testing.T) {
	file := func(dates ...string) string {
		return "Title,Date\n" + `"x","` + strings.Join(dates, "\"\n\"x\",\"") + "\"\n"
	}
	for name, tt := range map[string]struct {
		file  string
		dates imports.DateOrder
		want  string // of the last date, or an error
	}{
		"day first":            {file("1/2/2024", "13/2/2024"), "", "2024-02-13"},
		"month first":          {file("1/2/24", "2/13/24"), "", "2024-02-13"},
		"dotted":               {file("1.2.24"), "", "2024-02-01"},
		"dotted with spaces":   {file("24. 2. 3."), "", "2024-02-03"},
		"year first":           {file("2024-02-01"), "", "2024-02-01"},
		"year first, slashes":  {file("2024/2/1"), "", "2024-02-01"},
		"ambiguous":            {file("1/2/24", "3/4/24"), "", "error"},
		"ambiguous, told":      {file("1/2/24"), imports.MonthFirst, "2024-01-02"},
		"contradictory":        {file("13/2/24", "2/13/24"), "", "error"},
		"contradictory, told":  {file("2/13/24", "13/2/24"), imports.DayFirst, "2024-02-13"},
		"a damaged one":        {file("31/31/31", "13/2/24"), "", "2024-02-13"},
		"dotted with two ways": {file("12. 10. 21."), "", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			s := imports.FromReader(imports.Options{Now: now, Dates: tt.dates}, "f", strings.NewReader(tt.file))
			got := ""
			for i, err := range s.Items(t.Context()) {
				if err != nil {
					if got = "error"; !errors.Is(err, imports.ErrDateOrder) {
						t.Errorf("got %v", err)
					}
				} else if i.Outcome == imports.Read {
					got = instant(i.Event.At)[:10]
				}
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestItemsEnd stops in the middle, by the caller and by the context.
func TestItemsEnd(t *testing.T) {
	file := header + strings.Repeat("u,1,1790000000,t\n", 10_000)
	n := 0
	for _, err := range imports.FromReader(mapped(t, mapText), "f", strings.NewReader(file)).Items(t.Context()) {
		if n++; n == 5 || err != nil {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range imports.FromReader(mapped(t, mapText), "f", strings.NewReader(file)).Items(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}

// TestFrom reads one user's rows of a file of several.
func TestFrom(t *testing.T) {
	o := mapped(t, mapText)
	o.From, o.User = "b", "ann"
	wantBrief(t, imports.FromReader(o, "f", strings.NewReader(header+"a,1,1790000000,t\nb,2,1790000000,t\n")), ":2 of another user: \"a\"", "ann/2")
}
