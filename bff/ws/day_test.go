package ws_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// dated stores every heartbeat and answers day checks with 2026-11-21. Only zone +02:00 gets First.
func dated(_ context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	resp := &historyv1.ApplyResponse{}
	for i, h := range req.Heartbeats {
		resp.Statuses = append(resp.Statuses, historyv1.Status_STATUS_STORED)
		if d := h.Day; d != nil && d.Known != 20261121 {
			resp.Days = append(resp.Days, &historyv1.DaySeen{Index: uint32(i), Date: 20261121, First: d.Zone == "+02:00"})
		}
	}
	return resp, nil
}

func TestFirstOfDayInJSON(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		w.service.answer = dated
		conn := w.dial(t, "u1", inJSON)
		for flag, want := range map[string]string{
			``: `{"seq":1,"results":[{"status":"stored"}],"first_flag":"2026-11-21"}`,
			`"time_zone":"+02:00","first_flag":"2026-11-20",`: `{"seq":1,"results":[{"status":"stored"}],"first_flag":"2026-11-21","first_of_day":true}`,
			`"first_flag":"2026-11-21",`:                      `{"seq":1,"results":[{"status":"stored"}],"first_flag":"2026-11-21"}`,
		} {
			if got := say(t, conn, strings.Replace(message("1", beat), "{", "{"+flag, 1)); got != want {
				t.Errorf("%s: got %s, want %s", flag, got, want)
			}
		}
	})
}

func TestFirstOfDayInProtobuf(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		w.service.answer = dated
		conn := w.dial(t, "u1", inProto)
		hb := func() *historyv1.Heartbeat {
			return &historyv1.Heartbeat{ObjectId: "1", ObjectType: 1, Kind: historyv1.Kind_KIND_STOP, EventTimeMs: 1, Day: &historyv1.DayCheck{Known: 1}}
		}
		for _, tt := range []struct {
			day  *historyv1.DayCheck
			want []*historyv1.DaySeen
		}{
			{nil, nil},
			{&historyv1.DayCheck{Known: 20261121}, nil},
			{&historyv1.DayCheck{Zone: "+02:00"}, []*historyv1.DaySeen{{Date: 20261121, First: true}}},
		} {
			got := exchange(t, conn, &historyv1.StreamRequest{Sequence: 1, Heartbeats: []*historyv1.Heartbeat{hb(), hb()}, Day: tt.day})
			if want := (&historyv1.ApplyResponse{Days: tt.want}); len(got.GetResult().GetDays()) != len(want.Days) ||
				len(want.Days) > 0 && !proto.Equal(got.Result.Days[0], want.Days[0]) {
				t.Errorf("%v: got %v, want %v", tt.day, got, want)
			}
		}
	})
}
