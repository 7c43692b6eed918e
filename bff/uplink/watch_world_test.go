package uplink_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// desk is an instance's registry of watchers.
type desk struct {
	mu      sync.Mutex
	streams int
	stream  grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse]
	largest int                 // request
	users   map[string][]uint64 // of the current stream
	broken  chan struct{}       // ends the current stream
	deaf    bool                // streams end at once
}

// Watch confirms each watcher.
func (i *instance) Watch(stream grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse]) error {
	d := &i.desk
	d.mu.Lock()
	d.streams, d.stream, d.users, d.broken = d.streams+1, stream, make(map[string][]uint64), make(chan struct{})
	broken, deaf := d.broken, d.deaf
	d.mu.Unlock()
	if deaf {
		return status.Error(codes.Unavailable, "deaf")
	}
	go func() { // returns when the stream ends
		for {
			req, err := stream.Recv()
			if err != nil {
				return
			}
			d.ask(req)
		}
	}()
	select {
	case <-broken:
		return status.Error(codes.Unavailable, "broken")
	case <-stream.Context().Done():
		return nil
	}
}

func (d *desk) ask(req *historyv1.WatchRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.largest = max(d.largest, len(req.Added)+len(req.Removed))
	for _, a := range req.Added {
		d.users[a.Uid] = append(d.users[a.Uid], a.Id)
		_ = d.stream.Send(&historyv1.WatchResponse{Changes: []*historyv1.Change{{Uid: a.Uid, Added: []uint64{a.Id}}}}) // the test detects a missing message
	}
	for _, r := range req.Removed {
		if d.users[r.Uid] = slices.DeleteFunc(d.users[r.Uid], func(id uint64) bool { return id == r.Id }); len(d.users[r.Uid]) == 0 {
			delete(d.users, r.Uid)
		}
	}
}

// tell sends changes as the instance.
func (d *desk) tell(t *testing.T, changes ...*historyv1.Change) {
	t.Helper()
	d.mu.Lock()
	stream := d.stream
	d.mu.Unlock()
	if err := stream.Send(&historyv1.WatchResponse{Changes: changes}); err != nil {
		t.Error(err)
	}
}

func (d *desk) watched() map[string][]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.users
}

// rest waits until pending messages arrive.
func rest() {
	time.Sleep(100 * time.Millisecond) // virtual time
	synctest.Wait()
}

// device is a connection that listens.
type device struct {
	uid string
	id  uint64

	mu    sync.Mutex
	heard []string
}

func listening(c *uplink.Client, uid string, id uint64) *device {
	d := &device{uid: uid, id: id}
	c.Watch(uid, id, d.tell)
	return d
}

func (d *device) tell(c *historyv1.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := ""
	for _, it := range c.Items {
		text += fmt.Sprintf("%s@%d", it.Object.Id, it.PositionMs)
	}
	for _, o := range c.Removed {
		text += "-" + o.Id
	}
	if c.Resync {
		text += "resync"
	}
	d.heard = append(d.heard, text)
}

// take returns and resets the received changes.
func (d *device) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	heard := d.heard
	d.heard = nil
	return heard
}

func (d *device) hears(t *testing.T, want ...string) {
	t.Helper()
	rest()
	if got := d.take(); !slices.Equal(got, want) {
		t.Errorf("%s#%d was told %q, want %q", d.uid, d.id, got, want)
	}
}

func film(uid string, position int64, origin uint64) *historyv1.Change {
	return &historyv1.Change{Uid: uid, Origin: origin, Items: []*historyv1.Item{{Object: &historyv1.Object{Id: "film", Type: 1}, PositionMs: position}}}
}
