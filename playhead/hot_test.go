package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/hot"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestHot finds the user who reports most, over two services.
func TestHot(t *testing.T) {
	var admins []string
	for range 2 {
		p := started(t, t.TempDir())
		admins = append(admins, p.Admin())
		conn, err := grpc.NewClient(p.RPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		for i := range 40 {
			req := &historyv1.ApplyRequest{}
			for _, uid := range []string{"ann", "ann", "ann", fmt.Sprint("user", i)} {
				req.Heartbeats = append(req.Heartbeats, &historyv1.Heartbeat{Uid: uid, ObjectId: fmt.Sprint(len(req.Heartbeats)), ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: time.Now().UnixMilli()})
			}
			if _, err := historyv1.NewHistoryServiceClient(conn).Apply(t.Context(), req, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := asked(t, hottest, "--admin", strings.Join(admins, ","), "--json")
	var l hot.Load
	if err != nil || json.Unmarshal([]byte(out), &l) != nil {
		t.Fatalf("%v, %s", err, out)
	}
	if len(l.Users) == 0 || l.Users[0].UID != "ann" || l.Users[0].Bucket != history.BucketOf("ann") || len(l.Users) > 10 {
		t.Errorf("got %+v, want ann first of ten", l.Users)
	}
	if out, err = asked(t, hottest, "--admin", admins[0]); err != nil || !strings.Contains(out, "user ann, bucket ") {
		t.Errorf("got %v, %s", err, out)
	}
	if _, err := asked(t, hottest, "--admin", sick(t, "")); err == nil || !strings.Contains(err.Error(), "give the admin ports of services") {
		t.Errorf("a job: %v", err)
	}
}
