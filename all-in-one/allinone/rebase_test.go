package allinone_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// rebase calls the operators' service and returns the objects that were ahead, latest first.
func (h *here) rebase(uid string, dry bool) (objects []string, resp *historyv1.RebaseResponse) {
	h.Helper()
	conn, err := grpc.NewClient(h.RPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if resp, err = historyv1.NewRebaseServiceClient(conn).Rebase(h.Context(), &historyv1.RebaseRequest{Uid: uid, DryRun: dry}); err != nil {
		h.Fatal(err)
	}
	for _, r := range resp.GetRecords() {
		objects = append(objects, r.GetObject().GetId())
	}
	return objects, resp
}

// TestRebase: records of a clock a day ahead move to the present, and reports update them again. Their content
// stays, in the archive and after a restart.
func TestRebase(t *testing.T) {
	w := &wrong{dir: t.TempDir()}
	soon := func(c *allinone.Config) { c.Hold = time.Second }
	h := w.start(t, soon)
	h.wantBeat("past", "stored", 50000, time.Now())
	w.set(24 * time.Hour)
	for i, object := range []string{"first", "second"} {
		h.wantBeat(object, "stored", 50000, w.wall())
		// A stop, since less than ten seconds at the end count as a scrub once the user goes back.
		at := w.wall().Add(time.Duration(i+1) * time.Millisecond).UTC().Format(time.RFC3339Nano)
		h.send(t.Context(), "POST /v1/heartbeats", fmt.Sprintf(
			`{"heartbeats":[{"object":{"id":%q,"type":1},"kind":"stop","position_ms":8990000,"duration_ms":9000000,"event_time":%q}]}`, object, at))
	}
	h.wantBeat("gone", "stored", 50000, w.wall())
	h.send(t.Context(), "DELETE /v1/history/1/gone", "")
	h.clean(patience)
	w.set(0)
	h.wantBeat("second", "stale", 40000, time.Now())
	plays := func() (n int) {
		t.Helper()
		var row struct{ Plays int }
		if err := json.Unmarshal([]byte(h.rows(t.Context())["second"]), &row); err != nil {
			t.Fatal(err)
		}
		return row.Plays
	}
	before := plays()
	if before < 1 {
		t.Fatalf("%d plays before the rebase: %v", before, h.rows(t.Context()))
	}
	for _, dry := range []bool{true, true, false} {
		objects, resp := h.rebase("demo", dry)
		if want := []string{"gone", "second", "first"}; !slices.Equal(objects, want) || !resp.GetRecords()[0].GetDeleted() || resp.GetRecords()[1].GetDeleted() {
			t.Fatalf("dry run %v: got %v, want %v", dry, resp, want)
		}
	}
	check := func(when string, position float64) {
		t.Helper()
		if objects, _ := h.rebase("demo", true); objects != nil {
			t.Errorf("%s: %v are ahead", when, objects)
		}
		rows := h.rows(t.Context())
		var row struct {
			EventTime  time.Time `json:"event_time"`
			PositionMS float64   `json:"position_ms"`
		}
		if err := json.Unmarshal([]byte(rows["second"]), &row); err != nil {
			t.Fatalf("%s: %v in %q", when, err, rows)
		}
		if time.Until(row.EventTime) > time.Second || row.PositionMS != position {
			t.Errorf("%s: got %+v, want position %v of now", when, row, position)
		}
		if got := plays(); got != before {
			t.Errorf("%s: %d plays, want %d", when, got, before)
		}
	}
	check("rebased", 8990000)
	h.clean(patience)
	check("archived", 8990000)
	h.stop()
	h = w.start(t, soon)
	check("after a restart", 8990000)
	h.wantBeat("second", "stored", 60000, time.Now())
	h.wantBeat("gone", "stored", 60000, time.Now())
	check("played on", 60000)
	h.clean(patience)
	page, err := h.Archive().Page(t.Context(), "demo", history.Query{Limit: 10, Since: time.Now().Add(time.Minute).UnixMilli()})
	if err != nil || len(page.Items) != 0 {
		t.Errorf("the archive has %v, %v, want nothing ahead", page.Items, err)
	}
}
