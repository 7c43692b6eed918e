package ws_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestEveryFieldOfAProtobufHeartbeat sets every field that a player may set. The uid comes from the token,
// sent_at_ms and day from the message; origin and receipt time are set later.
func TestEveryFieldOfAProtobufHeartbeat(t *testing.T) {
	said := &historyv1.Heartbeat{
		ObjectId: "a", ObjectType: 2, Kind: historyv1.Kind_KIND_STOP, EventTimeMs: 1, PositionMs: 2, DurationMs: 3, Session: "s", Device: "d",
		Meta: map[string]string{"a": "b"}, RemovedMeta: []string{"c"}, Failed: true, StartedAtMs: 4, WatchedMs: 5, SpeedPercent: 150, IfMatch: 31, Incognito: true,
	}
	body, err := proto.Marshal(&historyv1.StreamRequest{Sequence: 1, SentAtMs: 9, Heartbeats: []*historyv1.Heartbeat{said}, Day: &historyv1.DayCheck{Known: 20261121}})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := ws.DecodeProto("u1", body)
	if err != nil {
		t.Fatal(err)
	}
	got := batch.Request().GetHeartbeats()[0].ProtoReflect()
	fields := got.Descriptor().Fields()
	for i := range fields.Len() {
		if name := fields.Get(i).Name(); got.Has(fields.Get(i)) != (name != "origin" && name != "received_at_ms") {
			t.Errorf("%s is read: %v", name, got.Has(fields.Get(i)))
		}
	}
}
