//go:build e2e

package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/pipeline"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestCounts reads totals of an object that two users complete, one of them twice. They say up to which time
// everything archived is in them.
func TestCounts(t *testing.T) {
	e := pipeline.FromEnv(t, false)
	s := pipeline.NewStack(t, e, 0, 0)
	defer s.Stop(t)
	flags := []string{"--counted-types", "1", "--kafka-counts-topic", s.Name + ".counts"}
	s.StartService(t, pipeline.FreeAddr(t), append(flags, "--hold", "1s")...)
	s.StartJob(t, append(flags, "--sweep-every", "2s", "--sweep-age", "4s")...)
	service := historyv1.NewHistoryServiceClient(pipeline.Dial(t, s.RPC))
	ask := &historyv1.CountsRequest{Objects: []*historyv1.Object{{Id: fmt.Sprint("film-", time.Now().UnixNano()), Type: 1}, {Id: "song", Type: 2}}}
	began := time.Now().UnixMilli()
	var beats []*historyv1.Heartbeat
	for i, uid := range []string{"ann", "ann", "bob"} {
		beats = append(beats, &historyv1.Heartbeat{
			Uid: uid, ObjectId: ask.GetObjects()[0].GetId(), ObjectType: 1, Kind: historyv1.Kind_KIND_FINISH, Session: fmt.Sprint("s", i),
			EventTimeMs: began - int64(10-i)*1000, PositionMs: 1000, DurationMs: 1000, StartedAtMs: began - 60_000, WatchedMs: 1000,
		})
	}
	if _, err := service.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: beats}); err != nil {
		t.Fatal(err)
	}
	pipeline.Await(t, time.Minute, "the plays to be counted", func(ctx context.Context) error {
		resp, err := service.Counts(ctx, ask)
		if err != nil {
			return err
		}
		film, song := resp.GetItems()[0], resp.GetItems()[1]
		if song.GetCounted() {
			return errors.New("a type is counted that nobody named")
		}
		if sum := film.GetTotal(); sum.GetPlays() != 3 || sum.GetViewers() != 2 || sum.GetWatchedMs() != 3000 || film.GetThroughMs() < began {
			return fmt.Errorf("got %v, want 3 plays of 2 viewers, through %d or later", film, began)
		}
		return nil
	})
}
