package api_test

import (
	"strings"
	"testing"
	"time"
)

// dated is an upload that says what day the player was told it is, and in which zone.
func dated(flag, zone string, beats ...string) string {
	return strings.Replace(upload(beats...), "{", `{"first_flag":"`+flag+`","time_zone":"`+zone+`",`, 1)
}

func TestFirstOfDay(t *testing.T) {
	w := newWorld(t)
	today := func(offset int) string {
		return time.Now().In(time.FixedZone("", offset*3600)).Format(time.DateOnly)
	}
	for i, tt := range []struct {
		uid, body, flag string
		first           bool
	}{
		{"u1", upload(at("1", "stop", 0, 1)), today(0), true},
		{"u1", upload(at("1", "stop", 0, 1)), today(0), false},
		{"u1", dated(today(0), "", at("1", "stop", 0, 1)), today(0), false},
		{"u2", dated("2020-02-02", "+00:00", `{"no":1}`, at("1", "stop", 0, 1)), "", false}, // refused as a whole
		{"u2", dated("2020-02-02", "+00:00", `{}`, at("1", "stop", 0, 1)), today(0), true},
		{"u3", dated("2999-12-31", "+14:00", at("1", "stop", 0, 1)), today(14), true},
		{"u3", dated(today(14), "-12:00", at("1", "stop", 0, 1)), today(-12), today(14) != today(-12)},
		{"u4", dated("2020-02-02", "", strings.Replace(at("1", "stop", 0, 1), "{", `{"incognito":true,`, 1)), "2020-02-02", false},
	} {
		code, answer := w.do(t, tt.uid, "POST /v1/heartbeats", tt.body)
		if tt.flag == "" {
			if code != 422 {
				t.Errorf("%d: got %d %v", i, code, answer)
			}
			continue
		}
		if code != 200 || answer["first_flag"] != tt.flag || answer["first_of_day"] != tt.first {
			t.Errorf("%d, %s: got %d %v, want %s, first %t", i, tt.body, code, answer, tt.flag, tt.first)
		}
	}
}
