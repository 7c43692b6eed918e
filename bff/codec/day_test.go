package codec_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const oneBeat = `"heartbeats":[{"object":{"id":"1","type":1},"kind":"stop","position_ms":1,"event_time":"2026-11-21T20:00:00Z"}]`

func TestDayCheck(t *testing.T) {
	for body, want := range map[string]struct {
		known uint32
		zone  string
	}{
		``:                                       {0, ""},
		`"sent_at":"2026-11-21T20:00:00Z",`:      {0, ""},
		`"sent_at":"2026-11-21T20:00:00+01:00",`: {0, "+01:00"},
		`"sent_at":"2026-11-21T20:00:00.123-09:30",`:                            {0, "-09:30"},
		`"sent_at":"2026-11-21T20:00:00+01:00","time_zone":"America/New_York",`: {0, "America/New_York"},
		`"time_zone":"Etc/GMT+12","sent_at":"2026-11-21T20:00:00+01:00",`:       {0, "Etc/GMT+12"},
		`"first_flag":"2026-11-21","time_zone":"+02:00",`:                       {20261121, "+02:00"},
		`"first_flag":"9999-12-31",`:                                            {99991231, ""},
		`"first_flag":null,"time_zone":null,"sent_at":null,`:                    {0, ""},
		`"first_flag":"","time_zone":"","sent_at":"2026-11-21T20:00:00-00:00",`: {0, "-00:00"},
	} {
		b, err := codec.DecodeBatch("ann", []byte("{"+body+oneBeat+"}"))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if day := b.Request().Heartbeats[0].GetDay(); day == nil || day.Known != want.known || day.Zone != want.zone {
			t.Errorf("%s: got %v, want %v", body, day, want)
		}
	}
}

// TestDayCheckOnce checks that a batch has one day check, on its first well-formed heartbeat.
func TestDayCheckOnce(t *testing.T) {
	beats := strings.TrimSuffix(oneBeat, "]") + "," + strings.TrimPrefix(oneBeat, `"heartbeats":[`)
	b, err := codec.DecodeBatch("ann", []byte(`{`+strings.Replace(beats, `[`, `[{},`, 1)+`}`))
	if err != nil {
		t.Fatal(err)
	}
	if hs := b.Request().Heartbeats; len(hs) != 2 || hs[0].Day == nil || hs[1].Day != nil {
		t.Errorf("got %v, want a question of the first", hs)
	}
	b, err = codec.DecodeBatch("ann", []byte(`{"first_flag":"2026-11-21","heartbeats":[]}`))
	if err != nil || len(b.Request().Heartbeats) != 0 {
		t.Fatalf("no heartbeats: %v", err)
	}
	if flag, first := b.Today(nil); flag != "2026-11-21" || first {
		t.Errorf("no heartbeats: got %q, %t", flag, first)
	}
}

func TestDayCheckRefused(t *testing.T) {
	for body, field := range map[string]string{
		`"first_flag":"21.11.2026"`:                     "body.first_flag",
		`"first_flag":"2026-02-30"`:                     "body.first_flag",
		`"first_flag":20261121`:                         "body.first_flag",
		`"time_zone":"a b"`:                             "body.time_zone",
		`"time_zone":"../x"`:                            "body.time_zone",
		`"time_zone":7`:                                 "body.time_zone",
		`"time_zone":"` + strings.Repeat("x", 65) + `"`: "body.time_zone",
		`"sent_at":"2026-11-21T20:00:00"`:               "body.sent_at",
		`"sent_at":""`:                                  "body.sent_at",
	} {
		_, err := codec.DecodeBatch("ann", []byte("{"+body+","+oneBeat+"}"))
		if e, ok := errors.AsType[*history.FieldError](err); !ok || e.Field != field {
			t.Errorf("%s: got %v, want %s refused", body, err, field)
		}
	}
}

// TestSentAt decodes the device's time, including times before the epoch.
func TestSentAt(t *testing.T) {
	for text, want := range map[string]int64{
		"2026-11-21T20:00:00Z": 1795291200000, "1970-01-01T00:10:00Z": 600_000, "1970-01-01T00:00:00Z": 1, "1969-12-31T21:00:00Z": 1,
	} {
		b, err := codec.DecodeBatch("ann", []byte(`{"sent_at":"`+text+`",`+oneBeat+`}`))
		if err != nil || len(b.Heartbeats) != 1 || b.Heartbeats[0].SentAtMs != want {
			t.Errorf("%s: got %v, %v, want %d", text, b, err, want)
		}
	}
}

// TestLongAgo decodes event times near 1970 and earlier. With an equally old sent_at they stay as they are;
// otherwise they are clamped to what no service takes for seconds.
func TestLongAgo(t *testing.T) {
	beat := func(at string) string { return strings.Replace(oneBeat, "2026-11-21T20:00:00Z", at, 1) }
	for _, tt := range []struct {
		at, sentAt string
		want       int64
	}{
		{"1970-01-21T12:13:16Z", "", history.MinTime},
		{"1969-12-31T21:00:00Z", "", history.MinTime},
		{"0001-01-01T00:00:00Z", "", history.MinTime},
		{"1970-01-01T00:00:05Z", `"sent_at":"2026-11-21T20:00:00Z",`, history.MinTime},
		{"1970-01-01T00:00:05Z", `"sent_at":"1970-01-01T00:00:09Z",`, 5000},
		{"2001-01-01T00:00:00Z", "", 978307200000},
	} {
		b, err := codec.DecodeBatch("ann", []byte("{"+tt.sentAt+beat(tt.at)+"}"))
		if err != nil || len(b.Heartbeats) != 1 || b.Heartbeats[0].EventTimeMs != tt.want {
			t.Errorf("%s%s: got %v, %v, want %d", tt.sentAt, tt.at, b, err, tt.want)
		}
	}
}

func TestToday(t *testing.T) {
	said := func(known, date uint32, first bool) (string, bool) {
		b := &codec.Batch{Day: &historyv1.DayCheck{Known: known}}
		resp := &historyv1.ApplyResponse{}
		if date != 0 {
			resp.Days = []*historyv1.DaySeen{{Date: date, First: first}}
		}
		return b.Today(resp)
	}
	for _, tt := range []struct {
		known, date uint32
		first       bool
		want        string
	}{
		{0, 0, false, ""},
		{20261121, 0, false, "2026-11-21"},
		{0, 20261121, true, "2026-11-21"},
		{20261120, 20261121, true, "2026-11-21"},
		{29991231, 20261121, false, "2026-11-21"},
	} {
		if flag, first := said(tt.known, tt.date, tt.first); flag != tt.want || first != tt.first {
			t.Errorf("%+v: got %q, %t", tt, flag, first)
		}
	}
	if flag, first := new(codec.Batch).Today(nil); flag != "" || first {
		t.Errorf("nothing asked: got %q, %t", flag, first)
	}
}

func TestFormatDay(t *testing.T) {
	for n, want := range map[uint32]string{20261121: "2026-11-21", 10101: "0001-01-01", 99991231: "9999-12-31"} {
		if got := codec.FormatDay(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
