package allinone_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/segment"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// machine drives services and jobs over one store with random steps, and keeps the folds that the store must reach.
type machine struct {
	*stores
	t        *rapid.T
	services []*modelService
	jobs     []func()

	acked map[history.Key]*history.Record // fold of acknowledged events
	sent  map[history.Key]*history.Record // fold of all sent events, which may be stored
	// paused has the users' pauses, where certain.
	paused map[string]history.Pause
	// cleared has each user's latest acknowledged clear, tried the latest attempt.
	cleared, tried map[string]int64
}

const modelSteps = 130

// TestRandomSteps takes at least ten thousand random steps, in a short run two:
// - new and old events, deletes, clears and pauses through three services;
// - repeated announcements, and time past holds and sweeps;
// - failing engines, lost answers, and dying services and jobs.
//
// Finally the archive has everything acknowledged and nothing unsent, deleted records stay away, and no mark is left.
func TestRandomSteps(t *testing.T) {
	t.Parallel()
	steps, want := 0, 10_000
	if testing.Short() {
		want = 2000
	}
	compressed(t)
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) { // rapid asks t for a deadline, which a bubble lacks
			home := filepath.Join(dir, strconv.Itoa(steps))
			m := newMachine(t, home)
			defer func() {
				m.stop()
				if err := os.RemoveAll(home); err != nil { // a store preallocates 100 MiB of disk
					t.Error(err)
				}
			}()
			for range modelSteps {
				m.step()
				steps++
			}
			m.quiet()
		})
	})
	if steps < want && !t.Failed() {
		t.Errorf("%d steps, want %d at least", steps, want)
	}
}

// compressed initializes the process-wide compressor of segments outside of any bubble.
func compressed(t *testing.T) {
	var items []history.Item
	for i := range 100 {
		e := history.Event{Kind: history.KindStop, At: 1_760_000_000_000 - int64(i)*1000, Session: fmt.Sprint("session", i)}
		items = append(items, history.Item{Object: history.Object{ID: fmt.Sprint("object", i), Type: 1}, Record: e.Record()})
	}
	chunks, err := segment.Encode(items)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := segment.Open(chunks[0].Data); err != nil {
		t.Fatal(err)
	}
}

func newMachine(t *rapid.T, dir string) *machine {
	seed := rapid.Uint64().Draw(t, "seed")
	db, err := pebble.Open(dir, pebble.Config{Keep: modelKeep, CompactAbove: modelKeep, CompactAfter: time.Second, Alone: rapid.Bool().Draw(t, "alone")})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{
		t: t,
		stores: &stores{db: db, queue: memqueue.New(memqueue.Config{}), trouble: &trouble{
			rand: rand.New(rand.NewPCG(seed, 0)), share: make(map[string]float64), //nolint:gosec // to be repeatable
		}},
		acked: make(map[history.Key]*history.Record), sent: make(map[history.Key]*history.Record),
		cleared: make(map[string]int64), tried: make(map[string]int64), paused: make(map[string]history.Pause),
	}
	for range 3 {
		m.services = append(m.services, m.serve(t))
	}
	for range 2 {
		m.jobs = append(m.jobs, m.archive(t))
	}
	return m
}

func (m *machine) stop() {
	for _, s := range m.services {
		s.kill()
	}
	for _, kill := range m.jobs {
		kill()
	}
	_ = m.db.Close() // nothing is read any more
}

func (m *machine) step() {
	switch rapid.SampledFrom([]string{
		"events", "events", "events", "events", "events", "delete", "clear", "switch", "again", "pass", "pass", "trouble", "service", "job", "read", "compact",
	}).Draw(m.t, "step") {
	case "events":
		m.events()
	case "delete":
		m.delete()
	case "clear":
		m.clear()
	case "switch":
		m.switched()
	case "again":
		m.again()
	case "pass":
		time.Sleep(rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Second, modelHold, 2 * modelHold}).Draw(m.t, "time"))
	case "trouble":
		engine := rapid.SampledFrom([]string{"cache", "archive", "queue"}).Draw(m.t, "engine")
		m.set(engine, rapid.SampledFrom([]float64{0, 0, 0.2, 1}).Draw(m.t, "share"))
	case "service":
		i := rapid.IntRange(0, len(m.services)-1).Draw(m.t, "service")
		m.services[i].kill()
		m.services[i] = m.serve(m.t)
	case "job":
		i := rapid.IntRange(0, len(m.jobs)-1).Draw(m.t, "job")
		m.jobs[i]()
		m.jobs[i] = m.archive(m.t)
	case "read":
		m.read()
	case "compact":
		m.compact()
	}
}

func (m *machine) service() *modelService {
	return m.services[rapid.IntRange(0, len(m.services)-1).Draw(m.t, "through")]
}

func (m *machine) uid() string {
	return rapid.SampledFrom([]string{"ann", "bob"}).Draw(m.t, "uid")
}

func (m *machine) key() history.Key {
	id := rapid.IntRange(0, 2*modelKeep).Draw(m.t, "object")
	return history.Key{UID: m.uid(), Object: history.Object{ID: fmt.Sprint(id), Type: 1}}
}

// ago draws a time: most reports are current, some late.
func (m *machine) ago() int64 {
	late := rapid.SampledFrom([]time.Duration{0, 0, 0, time.Second, time.Minute, 10 * time.Minute, time.Hour}).Draw(m.t, "late")
	return time.Now().Add(-late).UnixMilli() - rapid.Int64Range(0, 3).Draw(m.t, "ms")
}

// events sends one to four events through one service.
func (m *machine) events() {
	req := &historyv1.ApplyRequest{}
	var events []history.Event
	for range rapid.IntRange(1, 4).Draw(m.t, "events") {
		e := history.Event{
			Key: m.key(), At: m.ago(), Duration: 8000, Device: "tv",
			Kind:     history.Kind(rapid.IntRange(int(history.KindStart), int(history.KindFinish)).Draw(m.t, "kind")),
			Position: 1000 * rapid.Int64Range(0, 8).Draw(m.t, "position"), // few enough for a record's peaks
			Session:  rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(m.t, "session"),
		}
		events = append(events, e)
		req.Heartbeats = append(req.Heartbeats, &historyv1.Heartbeat{
			Uid: e.Key.UID, ObjectId: e.Key.Object.ID, ObjectType: 1, Kind: historyv1.Kind(e.Kind), EventTimeMs: e.At,
			PositionMs: e.Position, DurationMs: e.Duration, Session: e.Session, Device: e.Device,
		})
	}
	if rapid.IntRange(0, 4).Draw(m.t, "queued") == 0 {
		req.Ack = historyv1.Ack_ACK_QUEUED
	}
	resp, err := m.service().Apply(m.t.Context(), req)
	for i := range events {
		status := historyv1.Status_STATUS_UNAVAILABLE
		if err == nil {
			status = resp.Statuses[i]
		}
		if m.obeyed(&events[i], status); status != historyv1.Status_STATUS_PAUSED {
			m.note(&events[i], status != historyv1.Status_STATUS_UNAVAILABLE)
		}
	}
}

func (m *machine) note(e *history.Event, acked bool) {
	m.sent[e.Key] = history.Merge(m.sent[e.Key], e.Record())
	if acked {
		m.acked[e.Key] = history.Merge(m.acked[e.Key], e.Record())
	}
}

func (m *machine) delete() {
	e := history.Event{Key: m.key(), Kind: history.KindDelete, At: m.ago()}
	_, err := m.service().Delete(m.t.Context(), &historyv1.DeleteRequest{
		Uid: e.Key.UID, AtMs: e.At, Objects: []*historyv1.Object{{Id: e.Key.Object.ID, Type: 1}},
	})
	m.note(&e, err == nil)
}

func (m *machine) clear() {
	uid, until := m.uid(), m.ago()
	m.tried[uid] = max(m.tried[uid], until)
	if _, err := m.service().Clear(m.t.Context(), &historyv1.ClearRequest{Uid: uid, UntilMs: until}); err == nil {
		m.cleared[uid] = max(m.cleared[uid], until)
	}
}

// again redelivers announcements of the past.
func (m *machine) again() {
	s := m.service()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.past) > 0 {
		_, _ = m.queue.Publish(m.t.Context(), s.past[rapid.IntRange(0, len(s.past)-1).Draw(m.t, "from"):]) // the sweep covers a full queue
	}
}

// read reads one object, which must not predate an acknowledged delete or clear.
func (m *machine) read() {
	k := m.key()
	resp, err := m.service().Points(m.t.Context(), &historyv1.PointsRequest{Uid: k.UID, Objects: []*historyv1.Object{{Id: k.Object.ID, Type: 1}}})
	if err != nil || resp.Items[0].GetObject() == nil {
		return
	}
	gone := m.cleared[k.UID]
	if r := m.acked[k]; r != nil {
		gone = max(gone, r.RemovedAt)
	}
	if at := resp.Items[0].GetEventTimeMs(); at <= gone {
		m.t.Fatalf("%s is seen as of %d, deleted until %d", k, at, gone)
	}
}

func (m *machine) compact() {
	uid := m.uid()
	if _, err := m.db.Archive().Compact(m.t.Context(), uid); err != nil && !errors.Is(err, history.ErrConflict) {
		m.t.Fatalf("compact %s: %v", uid, err)
	}
}

// quiet ends all faults, lets the sweep find what dead services held, and compares.
func (m *machine) quiet() {
	for _, engine := range []string{"cache", "archive", "queue"} {
		m.set(engine, 0)
	}
	time.Sleep(3*modelHold + time.Minute)
	synctest.Wait()
	left, err := m.db.Cache().Overdue(m.t.Context(), buckets(), -time.Hour, 1<<20)
	if err != nil || len(left) > 0 {
		m.t.Fatalf("marks %v are left, %v", left, err)
	}
	for _, uid := range []string{"ann", "bob"} {
		m.compare(uid)
	}
}

// compare checks a user's archive and pages.
func (m *machine) compare(uid string) {
	row, err := m.db.Archive().Page(m.t.Context(), uid, history.Query{Limit: 10_000})
	if err != nil {
		m.t.Fatal(err)
	}
	cleared := row.User.Cleared[0]
	if cleared < m.cleared[uid] || cleared > m.tried[uid] {
		m.t.Fatalf("%s is cleared until %d in the archive; acknowledged %d, tried %d", uid, cleared, m.cleared[uid], m.tried[uid])
	}
	if p := m.pause(uid); row.User.Pause != p {
		m.t.Fatalf("%s is paused as %+v in the archive, and as %+v in the cache", uid, row.User.Pause, p)
	}
	got, visible := map[history.Object]*history.Record{}, 0
	for _, it := range row.Items {
		got[it.Object] = it.Record
		if !it.Record.Deleted() {
			visible++
		}
	}
	for k, sent := range m.sent {
		if k.UID == uid {
			m.between(k, got[k.Object], m.acked[k].After(cleared), sent.After(cleared))
		}
	}
	if pages := m.pages(uid); len(pages) != visible {
		m.t.Fatalf("%s: the pages have %v, the archive has %d", uid, pages, visible)
	}
}

// between checks that the archive has all acknowledged and no unsent events. Folds are ordered by inclusion.
func (m *machine) between(k history.Key, got, acked, sent *history.Record) {
	got, acked, sent = plain(got), plain(acked), plain(sent)
	if all := plain(history.Merge(got, acked)); !history.Same(all, got) {
		m.t.Fatalf("%s: something acknowledged is lost:\ngot   %+v\nacked %+v", k, got, acked)
	}
	if all := plain(history.Merge(sent, got)); !history.Same(all, sent) {
		m.t.Fatalf("%s: something is there that was not sent:\ngot  %+v\nsent %+v", k, got, sent)
	}
}

// plain removes the fields in which equivalent folds may differ.
func plain(r *history.Record) *history.Record {
	if r == nil {
		return nil
	}
	p := *r
	p.Partial, p.Revision = false, 0
	return &p
}

// pages reads all pages of a user, in order and without repeats.
func (m *machine) pages(uid string) (ids []string) {
	req := &historyv1.ListRequest{Uid: uid, Limit: 3}
	for last := int64(0); ; {
		resp, err := m.services[0].List(m.t.Context(), req)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, it := range resp.Items {
			if at := it.GetEventTimeMs(); slices.Contains(ids, it.Object.Id) || last != 0 && at > last {
				m.t.Fatalf("%s: %s is at the wrong place, after %v", uid, it.Object.Id, ids)
			}
			ids, last = append(ids, it.Object.Id), it.GetEventTimeMs()
		}
		if req.Cursor = resp.Cursor; !resp.HasMore {
			return ids
		}
	}
}

// switched turns recording off or on. Without an answer the state is uncertain.
func (m *machine) switched() {
	uid, recording := m.uid(), rapid.Bool().Draw(m.t, "recording")
	delete(m.paused, uid)
	resp, err := m.service().PutSettings(m.t.Context(), &historyv1.PutSettingsRequest{Uid: uid, Recording: recording})
	if err != nil {
		return
	}
	if got := resp.GetSettings().GetRecording(); got != recording {
		m.t.Fatalf("%s was switched to recording %t, and answered %t", uid, recording, got)
	}
	m.paused[uid] = m.pause(uid)
}

func (m *machine) pause(uid string) history.Pause {
	e := m.db.Cache().Load(m.t.Context(), []history.Key{history.UserKey(uid)})[0]
	if e.Err != nil {
		m.t.Fatal(e.Err)
	}
	return e.User.Pause
}

// obeyed checks that an event was stored only while recording was on. An event without effect may be unchanged.
func (m *machine) obeyed(e *history.Event, status historyv1.Status) {
	p, certain := m.paused[e.Key.UID]
	if !certain {
		return
	}
	refused := status == historyv1.Status_STATUS_PAUSED
	if covered := p.Covers(e.At); refused && !covered && !p.On() || covered && status == historyv1.Status_STATUS_STORED {
		m.t.Fatalf("%s at %d: %v, recording was off from %d until %d", e.Key, e.At, status, p.Since, p.Until)
	}
}
