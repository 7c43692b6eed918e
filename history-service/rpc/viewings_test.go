package rpc_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func viewings(t *testing.T, s *rpc.Server, id string) *historyv1.ViewingsResponse {
	t.Helper()
	resp, err := s.Viewings(t.Context(), &historyv1.ViewingsRequest{Uid: "ann", Object: &historyv1.Object{Id: id, Type: 1}})
	if err != nil {
		t.Fatalf("viewings of %s: %v", id, err)
	}
	return resp
}

// sessionsOf returns an object's sessions as "from-to device", in seconds.
func sessionsOf(t *testing.T, s *rpc.Server, id string) string {
	t.Helper()
	var all []string
	for _, one := range viewings(t, s, id).GetSessions() {
		from, to := "?", "?"
		if one.FromMs != nil {
			from = fmt.Sprint(one.GetFromMs() / 1000)
		}
		if one.ToMs != nil {
			to = fmt.Sprint(one.GetToMs() / 1000)
		}
		all = append(all, fmt.Sprintf("%s-%s %s", from, to, one.GetDevice()))
	}
	return strings.Join(all, ", ")
}

// on sets the device and session of a heartbeat.
func on(device string, hb *historyv1.Heartbeat) *historyv1.Heartbeat {
	hb.Device, hb.Session = device, "s-"+device
	return hb
}

// TestViewings: the viewings list earlier positions, without removed ones.
func TestViewings(t *testing.T) {
	s := newHouse(t).service(t)
	if resp := viewings(t, s, "7"); resp.GetFound() || len(resp.GetSessions()) > 0 {
		t.Errorf("of what nobody has played: %v", resp)
	}
	apply(t, s, on("tv", beat("ann/7", begin, 100_000, 5)), on("tv", beat("ann/7", progress, 90_000, 15)))
	apply(t, s, on("tablet", beat("ann/7", begin, 70_000, 14)), on("tablet", beat("ann/7", stop, 60_000, 24)), on("phone", beat("ann/7", progress, 50_000, 0)))
	apply(t, s, on("tv", beat("ann/7", stop, 80_000, 25))) // late
	if got := sessionsOf(t, s, "7"); got != "?-0 phone, 14-24 tablet, 5-25 tv" {
		t.Errorf("got %q", got)
	}
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 65_000}); err != nil {
		t.Fatal(err)
	}
	if got := sessionsOf(t, s, "7"); got != "?-0 phone, ?-24 tablet" {
		t.Errorf("after a clear up to within a session: got %q", got)
	}
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "7", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	if resp := viewings(t, s, "7"); resp.GetFound() || len(resp.GetSessions()) > 0 {
		t.Errorf("of what was deleted: %v", resp)
	}
	for name, req := range map[string]*historyv1.ViewingsRequest{
		"no user": {Object: &historyv1.Object{Id: "7", Type: 1}}, "no object": {Uid: "ann"},
	} {
		_, err := s.Viewings(t.Context(), req)
		wantCode(t, name, err, codes.InvalidArgument)
	}
}

// TestViewingsOfTheArchive: viewings include archived ones, if the cached record is missing or partial. Without the
// archive they are unavailable.
func TestViewingsOfTheArchive(t *testing.T) {
	h := smallHouse(t, 10)
	a := &gone{Archive: h.db.Archive()}
	s := h.service(t, func(c *rpc.Config) { c.Archive, c.Keep = a, 10 })
	ids := put(t, h, 30, 1000)
	oldest := ids[len(ids)-1]
	if got := viewings(t, s, oldest); !got.GetFound() || len(got.GetSessions()) != 1 {
		t.Errorf("of what the archive alone has: %v", got)
	}
	apply(t, s, on("tv", beat("ann/"+oldest, stop, 0, 3)))
	if got := viewings(t, s, oldest).GetSessions(); len(got) != 2 || got[0].GetDevice() != "tv" {
		t.Errorf("of what both have a part of: %v", got)
	}
	a.down.Store(true)
	_, err := s.Viewings(t.Context(), &historyv1.ViewingsRequest{Uid: "ann", Object: &historyv1.Object{Id: ids[len(ids)-2], Type: 1}})
	wantCode(t, "without the archive", err, codes.Unavailable)
	if got := viewings(t, s, ids[0]); !got.GetFound() {
		t.Errorf("of what the cache has: %v", got)
	}
}

// TestSessionsOfAnOldRecord: a record from before sessions were stored has its latest session, and the watched
// times of others.
func TestSessionsOfAnOldRecord(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	point(t, s, "ann", "warm")
	old := &history.Record{
		Revision: 1, Version: history.VersionOf(start-1000, history.RankStop), CellTime: start - 1000, State: history.StateStopped,
		Position: 9000, Session: "new", Device: "tv", Watches: []history.WatchedTime{{At: start - 5000, Viewing: 1, Watched: 700}},
	}
	h.shown(t, s, "7", old)
	want := `sessions:{end_ms:%d to_ms:9000 state:STATE_STOPPED device:"tv"} sessions:{end_ms:%d watched_ms:700}`
	got := strings.Join(strings.Fields(viewings(t, s, "7").String()), " ")
	if want = fmt.Sprintf("found:true "+want, start-1000, start-5000); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
