//go:build e2e

package pipeline_test

import (
	"fmt"
	"testing"
	"time"

	driver "github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestUserAsAWhole spreads a user's devices over two services. One switches recording off while the other holds
// the viewing, and all ask for first-of-day.
func TestUserAsAWhole(t *testing.T) {
	e := pipeline.FromEnv(t, false)
	s := pipeline.NewStack(t, e, 2, 1)
	defer s.Stop(t)
	var a, b historyv1.HistoryServiceClient
	for i, client := range []*historyv1.HistoryServiceClient{&a, &b} {
		*client = historyv1.NewHistoryServiceClient(pipeline.Dial(t, s.RPC[i:i+1]))
	}
	uid := fmt.Sprint("whole-", time.Now().UnixNano())
	beat := func(c historyv1.HistoryServiceClient, position int64, want historyv1.Status) *historyv1.ApplyResponse {
		t.Helper()
		time.Sleep(5 * time.Millisecond) // later than the previous one
		resp, err := c.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{{
			Uid: uid, ObjectId: "1", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, PositionMs: position, DurationMs: 1e6,
			EventTimeMs: time.Now().UnixMilli(), Session: "s", Day: &historyv1.DayCheck{},
		}}})
		if err != nil || resp.Statuses[0] != want {
			t.Fatalf("position %d: got %v, %v; want %v", position, resp, err, want)
		}
		return resp
	}
	firsts := 0
	for n := range int64(4) {
		c := a
		if n%2 == 1 {
			c = b
		}
		if beat(c, 1000*n, historyv1.Status_STATUS_STORED).GetDays()[0].GetFirst() {
			firsts++
		}
	}
	if firsts != 1 {
		t.Errorf("%d of four were told that it is the first time today, want one", firsts)
	}
	beat(a, 10_000, historyv1.Status_STATUS_STORED) // held by a from now on
	if _, err := b.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: uid}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []historyv1.HistoryServiceClient{a, b, a} {
		beat(c, 20_000, historyv1.Status_STATUS_PAUSED)
	}
	points, err := a.Points(t.Context(), &historyv1.PointsRequest{Uid: uid, Objects: []*historyv1.Object{{Id: "1", Type: 1}}})
	if err != nil || points.GetItems()[0].GetPositionMs() != 10_000 {
		t.Errorf("while recording is off: got %v, %v; want what was before", points, err)
	}
	if _, err := a.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Uid: uid, Recording: true}); err != nil {
		t.Fatal(err)
	}
	beat(b, 30_000, historyv1.Status_STATUS_STORED)
	if n := announced(t, e.Kafka, s.Name+".first", uid); n != 1 {
		t.Errorf("%d announcements of %s, want one", n, uid)
	}
}

func announced(t *testing.T, brokers, topic, uid string) (n int) {
	t.Helper()
	client := &driver.Client{Addr: driver.TCP(brokers)}
	meta, err := client.Metadata(t.Context(), &driver.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range meta.Topics[0].Partitions {
		conn, err := driver.DialLeader(t.Context(), "tcp", brokers, topic, p.ID)
		if err != nil {
			t.Fatal(err)
		}
		next, end, err := conn.ReadOffsets()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		r := driver.NewReader(driver.ReaderConfig{Brokers: []string{brokers}, Topic: topic, Partition: p.ID, MaxWait: 100 * time.Millisecond})
		for next < end {
			m, err := r.ReadMessage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if f, err := wire.First(m.Value); err != nil || f.UID != string(m.Key) {
				t.Errorf("message %q: %+v, %v", m.Key, f, err)
			} else if f.UID == uid {
				n++
			}
			next = m.Offset + 1
		}
		_ = r.Close()
	}
	return n
}
