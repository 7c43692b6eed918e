package ws_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type board struct {
	mu   sync.Mutex
	tell map[uint64]func(*historyv1.Change)
	uids map[uint64]string
}

func newBoard() *board {
	return &board{tell: make(map[uint64]func(*historyv1.Change)), uids: make(map[uint64]string)}
}

func (b *board) Watch(uid string, id uint64, tell func(*historyv1.Change)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell[id], b.uids[id] = tell, uid
}

func (b *board) Unwatch(_ string, id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.tell, id)
	delete(b.uids, id)
}

func (b *board) all(c *historyv1.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, tell := range b.tell {
		tell(c)
	}
}

func (w *world) listen(t *testing.T, protocol string) *websocket.Conn {
	t.Helper()
	w.query = "?push=true"
	defer func() { w.query = "" }()
	conn := w.dial(t, "u1", protocol)
	synctest.Wait()
	return conn
}

func film(position int64) *historyv1.Change {
	return &historyv1.Change{Uid: "u1", Origin: 7, Items: []*historyv1.Item{{Object: &historyv1.Object{Id: "film", Type: 1}, PositionMs: position}}}
}

func gone(id string) *historyv1.Change {
	return &historyv1.Change{Removed: []*historyv1.Object{{Id: id, Type: 1}}}
}

func pushed(t *testing.T, conn *websocket.Conn) string {
	t.Helper()
	var r codec.Reply
	if text := read(t, conn); json.Unmarshal([]byte(text), &r) != nil || r.Push == nil {
		t.Fatalf("got %s, want a push", text)
	}
	words := ""
	for _, it := range r.Push.Items {
		words += fmt.Sprintf("%s@%d ", it.Object.ID, it.PositionMS)
	}
	for _, o := range r.Push.Removed {
		words += "-" + o.ID + " "
	}
	if r.Push.Resync {
		words += "resync"
	}
	return strings.TrimSpace(words)
}

func TestPush(t *testing.T) {
	b := newBoard()
	bubble(t, ws.Config{Changes: b}, func(t *testing.T, w *world) {
		inText, inBytes := w.listen(t, inJSON), w.listen(t, inProto)
		if len(b.tell) != 2 || slices.Contains(keys(b.uids), 0) || b.uids[keys(b.uids)[0]] != "u1" {
			t.Fatalf("watched: %v", b.uids)
		}
		b.all(film(5))
		if got := pushed(t, inText); got != "film@5" {
			t.Errorf("got %s", got)
		}
		want := film(5)
		want.Uid, want.Origin = "", 0
		var got historyv1.StreamResponse
		if err := proto.Unmarshal([]byte(read(t, inBytes)), &got); err != nil || !proto.Equal(&got, &historyv1.StreamResponse{Push: want}) {
			t.Errorf("got %v, %v", &got, err)
		}
		if got := say(t, inText, message("1", beat)); !strings.Contains(got, `"seq":1`) {
			t.Errorf("an answer after a push: %s", got)
		}
		synctest.Wait() // a push is counted after the write
		if n, m := w.count(t, "playhead_ws_pushes_total"), w.count(t, "playhead_ws_pushed_resyncs_total"); n != 2 || m != 0 {
			t.Errorf("counted %v pushes, %v resyncs", n, m)
		}
		_ = inText.CloseNow()
		_ = inBytes.CloseNow()
		synctest.Wait()
		if len(b.tell) != 0 {
			t.Errorf("still watched: %v", b.uids)
		}
	})
}

func keys(m map[uint64]string) (ids []uint64) {
	for id := range m {
		ids = append(ids, id)
	}
	return ids
}

// TestTheOriginOfHeartbeats checks that heartbeats name their connection if it has push. A player's own origin
// is ignored.
func TestTheOriginOfHeartbeats(t *testing.T) {
	b := newBoard()
	bubble(t, ws.Config{Changes: b}, func(t *testing.T, w *world) {
		told, other := w.listen(t, inJSON), w.dial(t, "u1", inProto)
		say(t, told, message("1", beat))
		made := &historyv1.StreamRequest{Sequence: 1, Heartbeats: []*historyv1.Heartbeat{{ObjectId: "100", ObjectType: 1, Kind: 1, Origin: 9}}}
		text, err := proto.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		write(t, other, websocket.MessageBinary, string(text))
		read(t, other)
		if got, want := w.service.asked[0].Heartbeats[0].Origin, keys(b.uids)[0]; got != want {
			t.Errorf("origin %d, want %d", got, want)
		}
		if got := w.service.asked[1].Heartbeats[0].Origin; got != 0 {
			t.Errorf("origin %d of a connection that is not told, want 0", got)
		}
	})
}

// TestChangesWaitAsOne checks that changes coalesce while the player does not read: the newest per object.
func TestChangesWaitAsOne(t *testing.T) {
	b := newBoard()
	bubble(t, ws.Config{Changes: b}, func(t *testing.T, w *world) {
		conn := w.listen(t, inJSON)
		b.all(film(1)) // sent at once
		synctest.Wait()
		for n := range int64(100) {
			b.all(film(n))
			b.all(gone("book"))
		}
		b.all(film(200))
		for _, want := range []string{"film@1", "film@200 -book"} {
			if got := pushed(t, conn); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		b.all(film(1))
		synctest.Wait()
		b.all(gone("film"))
		b.all(film(2))
		b.all(gone("film"))
		for _, want := range []string{"film@1", "-film"} {
			if got := pushed(t, conn); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

// TestALaggingPlayer checks that a lagging player gets one resync.
func TestALaggingPlayer(t *testing.T) {
	b := newBoard()
	bubble(t, ws.Config{Changes: b}, func(t *testing.T, w *world) {
		conn := w.listen(t, inJSON)
		b.all(film(1))
		synctest.Wait()
		for n := range 1000 {
			b.all(gone(fmt.Sprint("book", n)))
		}
		for _, want := range []string{"film@1", "resync"} {
			if got := pushed(t, conn); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		b.all(film(2))
		if got := pushed(t, conn); got != "film@2" {
			t.Errorf("got %q afterwards", got)
		}
		if n, m := w.count(t, "playhead_ws_pushed_resyncs_total"), w.count(t, "playhead_ws_coalesced_changes_total"); n != 1 || m != 999 {
			t.Errorf("counted %v resyncs, %v coalesced", n, m)
		}
	})
}

// TestAPlayerThatTakesNoPush checks that an unread push counts as a slow reader, as with answers.
func TestAPlayerThatTakesNoPush(t *testing.T) {
	b := newBoard()
	bubble(t, ws.Config{Changes: b}, func(t *testing.T, w *world) {
		w.listen(t, inJSON)
		b.all(film(1))
		time.Sleep(20 * time.Second) // bubble time
		b.all(film(2))
		if n, m := w.count(t, "playhead_ws_connections"), w.count(t, "playhead_ws_closed_connections_total", "1013"); n != 0 || m != 1 || len(b.tell) != 0 {
			t.Errorf("%v connections, %v counted as slow, %d watched", n, m, len(b.tell))
		}
	})
}

// TestPushesBetweenAnswers checks that interleaved pushes and answers stay intact.
func TestPushesBetweenAnswers(t *testing.T) {
	b := newBoard()
	bubble(t, ws.Config{Changes: b}, func(t *testing.T, w *world) {
		conn := w.listen(t, inJSON)
		const n = 50
		go func() {
			for range n {
				write(t, conn, websocket.MessageText, message("1", beat))
			}
		}()
		go func() {
			for n := range int64(n) {
				b.all(film(n))
			}
		}()
		answers, last := 0, int64(0)
		for answers < n || last < n-1 {
			var r codec.Reply
			if err := json.Unmarshal([]byte(read(t, conn)), &r); err != nil || (r.Seq == 1) == (r.Push != nil) {
				t.Fatalf("got %+v, %v", r, err)
			}
			if r.Push == nil {
				answers++
				continue
			}
			if p := r.Push.Items[0].PositionMS; p < last {
				t.Errorf("push of %d after %d", p, last)
			}
			last = r.Push.Items[0].PositionMS
		}
	})
}

func TestNoPush(t *testing.T) {
	b := newBoard()
	bubble(t, ws.Config{Changes: b}, func(t *testing.T, w *world) {
		w.dial(t, "u1", inJSON)
		if len(b.tell) != 0 {
			t.Errorf("watched: %v", b.uids)
		}
	})
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		w.listen(t, inJSON) // the edge has no Changes
	})
}
