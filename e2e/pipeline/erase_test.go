//go:build e2e

package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/pipeline"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestErase erases a user through one service while another holds some of the user's viewings and the archive has
// others. Nothing returns: no held or queued record, and no repeated upload.
func TestErase(t *testing.T) {
	e := pipeline.FromEnv(t, false)
	s := pipeline.NewStack(t, e, 2, 1)
	defer s.Stop(t)
	uid, began := fmt.Sprint("erased-", time.Now().UnixNano()), time.Now().UnixMilli()
	var services []historyv1.HistoryServiceClient
	var erasures []historyv1.ErasureServiceClient
	for i := range 2 {
		conn := pipeline.Dial(t, s.RPC[i:i+1])
		services, erasures = append(services, historyv1.NewHistoryServiceClient(conn)), append(erasures, historyv1.NewErasureServiceClient(conn))
	}
	send := func(want historyv1.Status) {
		t.Helper()
		req := &historyv1.ApplyRequest{}
		for n := range int64(60) {
			kind := historyv1.Kind_KIND_PROGRESS // held
			if n < 40 {
				kind = historyv1.Kind_KIND_STOP // archived
			}
			req.Heartbeats = append(req.Heartbeats, &historyv1.Heartbeat{
				Uid: uid, ObjectId: fmt.Sprint(n), ObjectType: 1, Kind: kind, PositionMs: 1000, DurationMs: 1e6,
				EventTimeMs: began - n, Session: fmt.Sprint(n),
			})
		}
		for i, some := range [][]*historyv1.Heartbeat{req.Heartbeats[:30], req.Heartbeats[30:]} {
			resp, err := services[i].Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: some})
			if err != nil || resp.GetStatuses()[0] != want || resp.GetStatuses()[29] != want {
				t.Fatalf("got %v, %v, want %v", resp.GetStatuses(), err, want)
			}
		}
	}
	ask := func(dry bool) (found, left map[string]int64, remains string) {
		t.Helper()
		resp, err := erasures[1].Erase(t.Context(), &historyv1.EraseRequest{Uid: uid, DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		found, left = map[string]int64{}, map[string]int64{}
		for _, p := range resp.GetPlaces() {
			found[p.GetName()], left[p.GetName()] = p.GetFound(), p.GetLeft()
		}
		return found, left, strings.Join(resp.GetRemains(), "\n")
	}
	send(historyv1.Status_STATUS_STORED)
	pipeline.Await(t, time.Minute, "what has ended to be archived", func(context.Context) error {
		if found, _, _ := ask(true); found["archive: live records"] != 40 || found["cache: records"] != 60 || found["cache: dirty marks"] != 20 {
			return fmt.Errorf("found %v", found)
		}
		return nil
	})
	_, left, remains := ask(false)
	for place, n := range left {
		if n > 0 {
			t.Errorf("%s: %d left", place, n)
		}
	}
	for _, where := range []string{s.Name, "HBase", "append-only file", "for 168h0m0s"} {
		if !strings.Contains(remains, where) {
			t.Errorf("what remains is %q, want %q in it", remains, where)
		}
	}
	send(historyv1.Status_STATUS_CLEARED)
	pipeline.Await(t, time.Minute, "the clear to be archived", func(context.Context) error {
		page, err := services[0].List(t.Context(), &historyv1.ListRequest{Uid: uid})
		found, _, _ := ask(true)
		for place, n := range found {
			if n > 0 {
				err = errors.Join(err, fmt.Errorf("%s: %d", place, n))
			}
		}
		if len(page.GetItems()) > 0 {
			t.Fatalf("%d records came back", len(page.GetItems()))
		}
		return err
	})
}
