package replay_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

const noon = 1_650_812_700_000 // Unix milliseconds

// tell formats a plan: "a/1_1 start 0@+0, a/1_1 stop 5@+5", times relative to noon.
func tell(p *replay.Plan) string {
	kinds := map[history.Kind]string{history.KindStart: "start", history.KindProgress: "at", history.KindStop: "stop"}
	var all []string
	for i := range p.Len() {
		e := p.Event(i)
		all = append(all, fmt.Sprintf("%s %s %d@%+d", e.Key, kinds[e.Kind], e.Position, e.At-noon))
	}
	return strings.Join(all, ", ")
}

func TestExpand(t *testing.T) {
	for _, tt := range []struct {
		name  string
		vs    []replay.Viewing
		limit int
		want  string
	}{
		{"nothing", nil, 0, ""},
		{"never played", []replay.Viewing{viewing("a/1", noon, 0, 9)}, 0, ""},
		{"a millisecond", []replay.Viewing{viewing("a/1", noon, 1, 9)}, 0, "a/1_1 start 0@+0, a/1_1 stop 1@+1"},
		{"just below the period", []replay.Viewing{viewing("a/1", noon, 14999, 0)}, 0, "a/1_1 start 0@+0, a/1_1 stop 14999@+14999"},
		{
			"the period",
			[]replay.Viewing{viewing("a/1", noon, 15000, 0)},
			0,
			"a/1_1 start 0@+0, a/1_1 at 15000@+15000, a/1_1 stop 15000@+15000",
		},
		{
			"two at once, in the order of time",
			[]replay.Viewing{viewing("b/2", noon+5000, 20000, 0), viewing("a/1", noon, 16000, 0)},
			0,
			"a/1_1 start 0@+0, b/2_1 start 0@+5000, a/1_1 at 15000@+15000, a/1_1 stop 16000@+16000, b/2_1 at 15000@+20000, b/2_1 stop 20000@+25000",
		},
		{"limit of none", []replay.Viewing{viewing("a/1", noon, 1, 9)}, 1, ""},
		{
			"limit in the middle of a viewing",
			[]replay.Viewing{viewing("a/1", noon, 1, 9), viewing("b/1", noon+9, 40000, 0), viewing("c/1", noon+10, 1, 9)},
			5,
			"a/1_1 start 0@+0, a/1_1 stop 1@+1",
		},
		{
			"limit at the end of a viewing",
			[]replay.Viewing{viewing("a/1", noon, 15000, 0), viewing("b/1", noon+1, 1, 9)},
			3,
			"a/1_1 start 0@+0, a/1_1 at 15000@+15000, a/1_1 stop 15000@+15000",
		},
		{"those never played take no room", []replay.Viewing{viewing("z/1", noon, 0, 9), viewing("a/1", noon, 1, 9)}, 2, "a/1_1 start 0@+0, a/1_1 stop 1@+1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tell(replay.Expand(tt.vs, tt.limit)); got != tt.want {
				t.Errorf("expand to at most %d:\ngot  %s\nwant %s", tt.limit, got, tt.want)
			}
		})
	}
}

// TestExpandLong has positions over 31 bits.
func TestExpandLong(t *testing.T) {
	p := replay.Expand([]replay.Viewing{viewing("a/1", noon, history.MaxPosition, history.MaxPosition)}, 0)
	for i := range p.Len() {
		e := p.Event(i)
		if err := e.Validate(); err != nil || e.Position != e.At-noon {
			t.Fatalf("heartbeat %d of %d: position %d at %+d, %v", i, p.Len(), e.Position, e.At-noon, err)
		}
	}
	if last := p.Event(p.Len() - 1); last.Kind != history.KindStop || last.Position != history.MaxPosition {
		t.Errorf("the last heartbeat is %+v, want a stop after thirty days", last)
	}
}

func TestEndAt(t *testing.T) {
	p := replay.Expand([]replay.Viewing{viewing("b/2", noon+9, 1, 9), viewing("a/1", noon, 15000, 9)}, 0)
	was := make([]history.Event, p.Len())
	for i := range was {
		was[i] = p.Event(i)
	}
	for _, end := range []int64{noon + 1_000_000, noon - 1_000_000} { // the last move counts
		p.EndAt(end)
		for i := range was {
			want := was[i]
			want.At += end - (noon + 15000)
			if got := p.Event(i); got.At != want.At || got.Session != want.Session {
				t.Errorf("heartbeat %d: got %+v, want %+v", i, got, want)
			}
		}
	}
	empty := replay.Expand(nil, 0)
	empty.EndAt(noon)
	if empty.Len() != 0 || empty.Shift != 0 {
		t.Errorf("an empty plan was moved by %d", empty.Shift)
	}
}

func TestReported(t *testing.T) {
	p := replay.Expand([]replay.Viewing{viewing("a/1", noon, 0, 9), viewing("a/1", noon, 40000, 9), viewing("b/1", noon, 5, 9), viewing("c/1", noon, 50000, 9)}, 6)
	if got := p.Reported(); got != 2 {
		t.Errorf("%d viewings, want the two that were played and planned", got)
	}
}

// TestSession gives equal viewings one name and others another.
func TestSession(t *testing.T) {
	v, again, other := viewing("a/1", noon, 1, 9), viewing("a/1", noon, 2, 9), viewing("a/1", noon+1, 1, 9)
	if replay.Session(&v) != replay.Session(&again) || replay.Session(&v) == replay.Session(&other) {
		t.Errorf("sessions %s, %s, %s: want the first two equal", replay.Session(&v), replay.Session(&again), replay.Session(&other))
	}
}

const header = "user_id,video_id,time_ms,play_time_ms,duration_ms\n"

func viewing(key string, at, played, duration int64) replay.Viewing {
	uid, id, _ := strings.Cut(key, "/")
	return replay.Viewing{UID: uid, Object: history.Object{ID: id, Type: 1}, At: at, Played: played, Duration: duration}
}

func TestRead(t *testing.T) {
	one := []replay.Viewing{viewing("7/100", 1650812741436, 61802, 49866)}
	for _, tt := range []struct {
		name, csv string
		want      []replay.Viewing
	}{
		{"header only", header, nil},
		{"one row", header + "7,100,1650812741436,61802,49866\n", one},
		{"no newline at the end", header + "7,100,1650812741436,61802,49866", one},
		{"CRLF", "user_id,video_id,time_ms,play_time_ms,duration_ms\r\n7,100,1650812741436,61802,49866\r\n", one},
		{"byte order mark", "\ufeff" + header + "7,100,1650812741436,61802,49866\n", one},
		{"quotes", header + `"7","100","1650812741436","61802","49866"`, one},
		{"empty lines", header + "\n7,100,1650812741436,61802,49866\n\n\n", one},
		{
			"other columns, other order", "tab,duration_ms,user_id,is_like,play_time_ms,time_ms,video_id\n1,49866,7,0,61802,1650812741436,100\n", one,
		},
		{
			"repeated, unordered, empty and unknown", header + "b,1,1650812741437,5,0\na,1,1650812741436,0,9\na,1,1650812741436,0,9\n",
			[]replay.Viewing{viewing("b/1", 1650812741437, 5, 0), viewing("a/1", 1650812741436, 0, 9), viewing("a/1", 1650812741436, 0, 9)},
		},
		{"thirty days", header + "7,100,1650812741436,2592000000,2592000000\n", []replay.Viewing{viewing("7/100", 1650812741436, 2592000000, 2592000000)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := replay.Read(strings.NewReader(tt.csv))
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("read %q: got %+v, %v, want %+v", tt.csv, got, err, tt.want)
			}
		})
	}
}

// TestReadBroken puts an invalid row behind two valid ones: the error has its line and column, and Read returns
// no rows.
func TestReadBroken(t *testing.T) {
	const good = header + "7,100,1650812741436,61802,49866\n8,100,1650812741437,61802,49866\n"
	for _, tt := range []struct{ name, csv, want string }{
		{"nothing", "", "it is empty, without even a header: want user_id, video_id, time_ms, play_time_ms, duration_ms"},
		{"no such column", "user_id,video_id,time_ms,duration_ms\n7,100,1650812741436,49866\n", `no column "play_time_ms"; want user_id, video_id, time_ms, play_time_ms, duration_ms`},
		{"UTF-16", "\xff\xfeu\x00s\x00e\x00r\x00\n\x00", `no column "user_id"`},
		{"cut off in a row", good + "9,100,165081", "line 4: 3 columns, want 5"},
		{"cut off at a comma", good + "9,100,1650812741436,61802,", `line 4: duration_ms: "" is not a number`},
		{"one column too many", good + "9,100,1650812741436,61802,49866,1\n9,100,1650812741436,61802,49866\n", "line 4: 6 columns, want 5"},
		{"bare quote", good + `9,1"0,1650812741436,61802,49866`, "line 4, column 4"},
		{"open quote", good + `9,"100,1650812741436,61802,49866`, "line 4"},
		{"negative", good + "9,100,1650812741436,-1,49866\n", "line 4: play_time_ms: want 0 to 2592000000"},
		{"negative time", good + "9,100,-1650812741436,1,49866\n", "line 4: time_ms: want"},
		{"overflow", good + "9,100,1650812741436,9223372036854775808,49866\n", `line 4: play_time_ms: "9223372036854775808" is not a number`},
		{"thousand years", good + "9,100,1650812741436,9223372036854775807,49866\n", "line 4: play_time_ms: want 0 to 2592000000"},
		{"long duration", good + "9,100,1650812741436,1,2592000001\n", "line 4: duration_ms: want 0"},
		{"fraction", good + "9,100,1650812741436,1.5,49866\n", `line 4: play_time_ms: "1.5" is not a number`},
		{"blank", good + "9,100,1650812741436, 1,49866\n", `line 4: play_time_ms: " 1" is not a number`},
		{"seconds", good + "9,100,1650812741,1,49866\n", "line 4: time_ms: looks like seconds"},
		{"far future", good + "9,100,9223372036854775807,1,49866\n", "line 4: time_ms: want"},
		{"no user", good + ",100,1650812741436,1,49866\n", "line 4: user_id: want 1 to 256 bytes"},
		{"long user", good + strings.Repeat("9", 257) + ",100,1650812741436,1,49866\n", "line 4: user_id: want 1 to 256 bytes"},
		{"Latin-1", good + "Andr\xe9,100,1650812741436,1,49866\n", "line 4: user_id: want 1 to 256 bytes of UTF-8"},
		{"no object", good + "9,,1650812741436,1,49866\n", "line 4: video_id: want 1 to 256 bytes"},
		{"object with a tab", good + "9,a\tb,1650812741436,1,49866\n", "line 4: video_id: want 1 to 256 bytes of UTF-8"},
		{"rows of several lines before", header + "\"7\",100,1650812741436,1,1\n\n\n9,100,x,1,1\n", `line 5: time_ms: "x" is not a number`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := replay.Read(strings.NewReader(tt.csv))
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(got) > 0 {
				t.Errorf("read %q: got %d rows and %v, want %q", tt.csv, len(got), err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is not one line", err)
			}
		})
	}
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadFile(t *testing.T) {
	rows := header + strings.Repeat("7,100,1650812741436,61802,49866\n", 1000)
	packed := zipped(t, rows)
	dir := t.TempDir()
	for _, tt := range []struct {
		name    string
		content []byte
		rows    int
		want    string
	}{
		{"plain.csv", []byte(rows), 1000, ""},
		{"packed.csv.gz", packed, 1000, ""},
		{"two members.csv.gz", append(packed, zipped(t, "8,100,1650812741436,61802,49866\n")...), 1001, ""},
		{"plain.csv.gz", []byte(rows), 0, "plain.csv.gz: gzip: invalid header"},
		{"packed.csv", packed, 0, "packed.csv: "},
		{"empty.csv.gz", nil, 0, "empty.csv.gz: it is empty"},
		{"cut off.csv.gz", packed[:len(packed)-12], 0, "unexpected EOF"},
		{"cut in the check.csv.gz", packed[:len(packed)-3], 0, "after row 1000: unexpected EOF"},
		{"wrong check.csv.gz", append(packed[:len(packed)-5:len(packed)-5], 1, 2, 3, 4, 5), 0, "after row 1000: gzip: invalid checksum"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.name)
			if err := os.WriteFile(path, tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := replay.ReadFile(path)
			if len(got) != tt.rows || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %d rows and %v, want %d and %q", len(got), err, tt.rows, tt.want)
			}
		})
	}
	for _, path := range []string{"", dir, filepath.Join(dir, "none.csv")} {
		if _, err := replay.ReadFile(path); err == nil || !strings.Contains(err.Error(), "read trace") {
			t.Errorf("read %q: %v", path, err)
		}
	}
}

func TestSynthetic(t *testing.T) {
	const viewers, viewings = 20, 3
	for _, beats := range []int{2, 3, 14} {
		p := replay.Expand(replay.Synthetic(viewers, viewings, beats), 0)
		if got, want := p.Len(), viewers*viewings*beats; got != want {
			t.Errorf("%d heartbeats in viewings of %d, want %d", got, beats, want)
		}
		ofKey := map[history.Key]int{}
		open := map[string]history.Object{} // by user
		for i := range p.Len() {
			e := p.Event(i)
			ofKey[e.Key]++
			if o, running := open[e.Key.UID]; running && o != e.Key.Object {
				t.Fatalf("user %s watches %s beside %s", e.Key.UID, e.Key.Object, o)
			}
			open[e.Key.UID] = e.Key.Object
			if e.Kind == history.KindStop {
				delete(open, e.Key.UID)
			}
		}
		for k, n := range ofKey {
			if n != beats {
				t.Errorf("%d heartbeats of %s, want %d", n, k, beats)
			}
		}
		if len(ofKey) != viewers*viewings || len(open) != 0 {
			t.Errorf("%d viewings, %d not stopped, want %d and none", len(ofKey), len(open), viewers*viewings)
		}
	}
}
