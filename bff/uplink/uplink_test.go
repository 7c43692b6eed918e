package uplink_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// list reads as uid. Tests use it to find a user's instance.
func list(ctx context.Context, c *uplink.Client, uid string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := c.List(ctx, &historyv1.ListRequest{Uid: uid})
	return resp.GetCursor(), err
}

func TestAUserStaysWithOneInstance(t *testing.T) {
	a, b := start(t), start(t)
	c := open(t, uplink.Config{}, a, b)
	awaitUp(t, c, a, b)
	owners := map[string]int{}
	for _, uid := range users(200) {
		first, err := list(t.Context(), c, uid)
		if err != nil {
			t.Fatal(err)
		}
		owners[first]++
		for range 3 {
			if again, err := list(t.Context(), c, uid); err != nil || again != first {
				t.Fatalf("%s: %s, %v, and %s before", uid, again, err, first)
			}
		}
	}
	if owners[a.addr] < 60 || owners[b.addr] < 60 {
		t.Errorf("200 users over two instances: %v", owners)
	}
}

func TestOnlyTheUsersOfTheDeadMove(t *testing.T) {
	all := []*instance{start(t), start(t), start(t)}
	c := open(t, uplink.Config{}, all...)
	awaitUp(t, c, all...)
	before := map[string]string{}
	for _, uid := range users(100) {
		before[uid], _ = list(t.Context(), c, uid)
	}
	all[0].server.Stop()
	for uid, was := range before {
		is, err := list(t.Context(), c, uid)
		if err != nil {
			t.Fatalf("%s, of %s, after the death of %s: %v", uid, was, all[0].addr, err)
		}
		if (is != was) != (was == all[0].addr) {
			t.Errorf("%s went from %s to %s after the death of %s", uid, was, is, all[0].addr)
		}
	}
	awaitUp(t, c, restart(t, all[0]))
}

func TestAnInstanceThatIsNotWellIsLeftAlone(t *testing.T) {
	a, b := start(t), start(t)
	a.health.Shutdown()
	c := open(t, uplink.Config{}, a, b)
	awaitUp(t, c, b)
	for _, uid := range users(50) {
		if who, err := list(t.Context(), c, uid); err != nil || who != b.addr {
			t.Fatalf("%s was served by %s, %v; want %s", uid, who, err, b.addr)
		}
	}
	a.health.Resume()
	awaitUp(t, c, a)
}

func TestNoInstance(t *testing.T) {
	a := start(t)
	c := open(t, uplink.Config{}, a)
	awaitUp(t, c, a)
	if err := c.Ready(t.Context()); err != nil {
		t.Errorf("Ready: %v", err)
	}
	a.server.Stop()
	for c.Ready(t.Context()) == nil { // until the client notices the lost connection
		_, _ = list(t.Context(), c, "u1")
	}
	if err := c.Ready(t.Context()); !strings.Contains(err.Error(), "no instance") {
		t.Errorf("Ready: %v", err)
	}
	if _, err := list(t.Context(), c, "u1"); status.Code(err) != codes.Unavailable {
		t.Errorf("a read: %v, want %v", err, codes.Unavailable)
	}
	if err := apply(t.Context(), c, "u1"); status.Code(err) != codes.Unavailable {
		t.Errorf("a write: %v, want %v", err, codes.Unavailable)
	}
}

func TestOpenRefuses(t *testing.T) {
	for services, want := range map[string]string{"": "no address", "nowhere": "want host:port", "dns:///name": "want host:port"} {
		if c, err := uplink.Open(uplink.Config{Services: strings.Fields(services)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", services, c, err, want)
		}
	}
}

// A failed store looks the same from everywhere, unless only one instance has lost it. The read is tried on
// two more instances.
func TestErrorsKeepTheirCode(t *testing.T) {
	a, b := start(t), start(t)
	c := open(t, uplink.Config{}, a, b)
	awaitUp(t, c, a, b)
	a.listErr, b.listErr = status.Error(codes.Unavailable, "cache down"), status.Error(codes.Unavailable, "cache down")
	before := a.lists.Load() + b.lists.Load()
	if _, err := list(t.Context(), c, "u1"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "cache down") {
		t.Errorf("got %v, want %v", err, codes.Unavailable)
	}
	if n := a.lists.Load() + b.lists.Load() - before; n != 3 {
		t.Errorf("tried %d times, want 3", n)
	}
	told, err := status.New(codes.Unavailable, "archive unavailable").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	a.listErr, b.listErr = told.Err(), told.Err()
	before = a.lists.Load() + b.lists.Load()
	if _, _ = list(t.Context(), c, "u1"); a.lists.Load()+b.lists.Load()-before != 1 {
		t.Error("who is told when to come back is asked again at once")
	}
	a.listErr, b.listErr = status.Error(codes.Unavailable, "cache down"), status.Error(codes.Unavailable, "cache down")
	for range 1000 { // an outage: then once
		_, _ = list(t.Context(), c, "u1")
	}
	before = a.lists.Load() + b.lists.Load()
	if _, _ = list(t.Context(), c, "u1"); a.lists.Load()+b.lists.Load()-before != 1 {
		t.Error("in an outage a read is still tried more than once")
	}
	a.listErr, b.listErr = status.Error(codes.InvalidArgument, "cursor"), status.Error(codes.InvalidArgument, "cursor")
	if _, err := list(t.Context(), c, "u1"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want %v", err, codes.InvalidArgument)
	}
}

func TestMethods(t *testing.T) {
	c := open(t, uplink.Config{}, start(t))
	points, err := c.Points(t.Context(), &historyv1.PointsRequest{})
	if err != nil || len(points.Items) != 1 || points.Items[0].Session != "p" {
		t.Errorf("Points: %v, %v", points, err)
	}
	if resp, err := c.Delete(t.Context(), &historyv1.DeleteRequest{}); err != nil || resp.Deleted != 7 {
		t.Errorf("Delete: %v, %v", resp, err)
	}
	if resp, err := c.Changes(t.Context(), &historyv1.ChangesRequest{}); err != nil || resp.Token != "t" {
		t.Errorf("Changes: %v, %v", resp, err)
	}
	if resp, err := c.Viewings(t.Context(), &historyv1.ViewingsRequest{}); err != nil || !resp.Found {
		t.Errorf("Viewings: %v, %v", resp, err)
	}
	if resp, err := c.Search(t.Context(), &historyv1.SearchRequest{}); err != nil || resp.Searched != 8 {
		t.Errorf("Search: %v, %v", resp, err)
	}
	if resp, err := c.Dismiss(t.Context(), &historyv1.DismissRequest{}); err != nil || resp.Found != 6 {
		t.Errorf("Dismiss: %v, %v", resp, err)
	}
	if resp, err := c.Mark(t.Context(), &historyv1.MarkRequest{}); err != nil || len(resp.Statuses) != 5 {
		t.Errorf("Mark: %v, %v", resp, err)
	}
	if resp, err := c.GetSettings(t.Context(), &historyv1.GetSettingsRequest{}); err != nil || resp.Settings.PausedMs != 9 {
		t.Errorf("get settings: got %v, %v", resp, err)
	}
	if resp, err := c.PutSettings(t.Context(), &historyv1.PutSettingsRequest{Recording: true}); err != nil || !resp.Settings.Recording {
		t.Errorf("put settings: got %v, %v", resp, err)
	}
	if resp, err := c.Clear(t.Context(), &historyv1.ClearRequest{}); err != nil || resp.ClearedMs != 8 {
		t.Errorf("Clear: %v, %v", resp, err)
	}
	if resp, err := c.Apply(t.Context(), &historyv1.ApplyRequest{}); err != nil || len(resp.Statuses) > 0 {
		t.Errorf("Apply of nothing: %v, %v", resp, err)
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	a := start(t)
	a.hang = make(chan struct{})
	c := open(t, uplink.Config{}, a)
	done := make(chan error, 1)
	go func() { _, err := c.Apply(t.Context(), beats("u1", 1)); done <- err }() // returns after Close
	<-a.asked
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("a call was answered by nobody")
	}
	if err := apply(t.Context(), c, "u1"); err == nil {
		t.Error("a closed client took a call")
	}
}
