package client_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/client"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// filmService keeps one record, the latest report, and matches etags like the service.
type filmService struct {
	mu     sync.Mutex
	record *messagev1.Item // nil without a record
	reqs   []*messagev1.ApplyRequest
	lost   func() // called when the next message is stored
	failed bool   // the next message finds the store unavailable
	delay  time.Duration
	today  uint32
	met    bool // the user was seen today
	// glanced makes another device start after each report, which only changes the record's event time and etag.
	glanced bool
}

const glance = 1 << 62 // added to the etag

func (s *filmService) apply(req *messagev1.ApplyRequest) *messagev1.ApplyResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reqs = append(s.reqs, req)
	if s.failed {
		s.failed = false
		return &messagev1.ApplyResponse{Statuses: all(req.Heartbeats, messagev1.Status_STATUS_UNAVAILABLE)}
	}
	resp := &messagev1.ApplyResponse{}
	var granted maker // viewing that knew the record
	for _, h := range req.Heartbeats {
		resp.Statuses = append(resp.Statuses, s.put(h, &granted))
		if h.Day != nil && h.Day.Known != s.today {
			resp.Days = append(resp.Days, &messagev1.DaySeen{Date: s.today, First: !s.met})
			s.met = true
		}
	}
	for _, status := range resp.Statuses {
		if req.ReturnRecords || status == messagev1.Status_STATUS_CONFLICT {
			resp.Records = slices.Repeat([]*messagev1.Item{s.shown()}, len(resp.Statuses))
		}
	}
	for i, r := range resp.Records {
		if r == nil {
			resp.Records[i] = &messagev1.Item{}
		}
	}
	if s.lost != nil {
		s.lost()
		s.lost = nil
	}
	return resp
}

// shown returns the record as read. The caller holds the lock.
func (s *filmService) shown() *messagev1.Item {
	if !s.glanced || s.record == nil {
		return s.record
	}
	r := proto.CloneOf(s.record)
	r.EventTimeMs, r.Session, r.Device, r.Early, r.Etag = r.EventTimeMs+1, "glance", "tv", true, r.Etag|glance
	return r
}

type maker struct{ session, device string }

func (s *filmService) put(h *messagev1.Heartbeat, granted *maker) messagev1.Status {
	r, by := s.record, maker{h.Session, h.Device}
	switch {
	case h.ObjectId != "film":
		return messagev1.Status_STATUS_STORED
	case r != nil && h.EventTimeMs == r.EventTimeMs && by == (maker{r.Session, r.Device}):
		*granted = by
		return messagev1.Status_STATUS_UNCHANGED
	case r != nil && h.EventTimeMs <= r.EventTimeMs:
		return messagev1.Status_STATUS_STALE
	case h.IfMatch != 0 && *granted != by && (r == nil || r.Etag != h.IfMatch&^glance):
		return messagev1.Status_STATUS_CONFLICT
	case h.IfMatch != 0:
		*granted = by
	}
	s.record = &messagev1.Item{
		Object: &messagev1.Object{Id: h.ObjectId, Type: h.ObjectType}, EventTimeMs: h.EventTimeMs, PositionMs: h.PositionMs,
		Session: h.Session, Device: h.Device, Etag: uint64(h.EventTimeMs)<<8 + uint64(h.PositionMs), //nolint:gosec // neither is negative
	}
	return messagev1.Status_STATUS_STORED
}

func (s *filmService) other(position int64) *messagev1.Item { return s.another("there", position) }

func (s *filmService) another(session string, position int64) *messagev1.Item {
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.elsewhere(session, position)
	return s.record
}

// elsewhere stores a report of another device. The caller holds the lock.
func (s *filmService) elsewhere(session string, position int64) {
	var none maker
	s.put(&messagev1.Heartbeat{ObjectId: "film", ObjectType: 1, Session: session, Device: "tv", PositionMs: position, EventTimeMs: time.Now().UnixMilli()}, &none)
}

// film reports for the player's session, later than before.
func (w *world) film(session string, position int64) {
	w.Helper()
	time.Sleep(time.Millisecond)
	if err := w.client.Report(filmed(session, position)); err != nil {
		w.Error(err)
	}
}

// untroubled checks that no answer is a conflict.
func (w *world) untroubled() {
	w.Helper()
	for _, a := range w.answers {
		if a.Status == messagev1.Status_STATUS_CONFLICT {
			w.Errorf("told %v", a)
		}
	}
}

// guard reports with the caller's guard.
func (w *world) guard(position int64, etag uint64) {
	time.Sleep(time.Millisecond)
	h := filmed("here", position)
	h.IfMatch = etag
	_ = w.client.Report(h) // never fails
}

func filmed(session string, position int64) *messagev1.Heartbeat {
	return &messagev1.Heartbeat{
		ObjectId: "film", ObjectType: 1, Kind: messagev1.Kind_KIND_PROGRESS, Session: session, PositionMs: position, EventTimeMs: time.Now().UnixMilli(),
	}
}

// away cuts the connection and refuses new ones, until away(false).
func (w *world) away(yes bool) {
	if !yes {
		w.refuse(0)
		return
	}
	w.refuse(503)
	w.door.Cut()
	synctest.Wait()
}

func TestGuards(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(*world)
		want []string // "position status"
		at   int64    // final position of the record
	}{
		{"nobody was there", func(w *world) {
			w.away(true)
			w.film("here", 2)
			w.film("here", 3)
			w.away(false)
		}, []string{"1 STORED", "2 STORED", "3 STORED"}, 3},
		{"somebody was, before reports while reconnecting", func(w *world) {
			w.away(true)
			w.films.other(3000)
			w.film("here", 2)
			w.film("here", 3)
			w.away(false)
		}, []string{"1 STORED", "2 CONFLICT", "3 CONFLICT"}, 3000},
		{"and the next ones are in conflict too", func(w *world) {
			w.away(true)
			w.films.other(3000)
			w.film("here", 2)
			w.away(false)
			w.flush(time.Minute)
			w.film("here", 3)
		}, []string{"1 STORED", "2 CONFLICT", "3 CONFLICT"}, 3000},
		{"until the user has decided", func(w *world) {
			w.away(true)
			w.films.other(3000)
			w.film("here", 2)
			w.away(false)
			w.flush(time.Minute)
			w.client.Seen(w.answers[len(w.answers)-1].Record)
			w.film("here", 3)
		}, []string{"1 STORED", "2 CONFLICT", "3 STORED"}, 3},
		{"somebody has only just begun", func(w *world) {
			w.films.glanced = true
			w.away(true)
			w.film("here", 2)
			w.films.lost = func() { // the next report waits for this answer
				later := filmed("here", 3)
				later.EventTimeMs++
				_ = w.client.Report(later) // never fails
			}
			w.away(false)
		}, []string{"1 STORED", "2 STORED", "3 STORED"}, 3},
		{"somebody has only just begun, and an answer was lost", func(w *world) {
			w.films.glanced = true
			w.films.lost = w.door.Cut
			w.refuse(503)
			w.film("here", 2)
			synctest.Wait()
			w.film("here", 3)
			w.refuse(0)
		}, []string{"1 STORED", "2 UNCHANGED", "3 STORED"}, 3},
		{"reports from before and from while it was away", func(w *world) {
			w.films.lost = w.door.Cut
			w.refuse(503)
			w.film("here", 2)
			synctest.Wait()
			w.film("here", 3)
			w.refuse(0)
		}, []string{"1 STORED", "2 UNCHANGED", "3 STORED"}, 3},
		{"another session of the same device", func(w *world) {
			w.away(true)
			w.film("here", 2)
			w.film("again", 3)
			w.film("again", 4)
			w.away(false)
		}, []string{"1 STORED", "2 STORED", "3 STORED", "4 STORED"}, 4},
		{"an answer was lost, and more was reported", func(w *world) {
			w.away(true)
			w.film("here", 2)
			w.films.lost = func() {
				w.door.Cut()
				later := filmed("here", 3)
				later.EventTimeMs++
				_ = w.client.Report(later) // never fails
			}
			w.away(false)
			time.Sleep(time.Second)
		}, []string{"1 STORED", "2 UNCHANGED", "3 STORED"}, 3},
		{"the record was removed", func(w *world) {
			w.away(true)
			w.film("here", 2)
			w.film("here", 3)
			w.films.record = nil
			w.away(false)
		}, []string{"1 STORED", "2 STORED", "3 STORED"}, 3},
		{"the record was removed, and somebody came after that", func(w *world) {
			w.away(true)
			w.film("here", 2)
			w.films.record = nil
			w.films.lost = func() { w.films.elsewhere("there", 3000) }
			w.away(false)
			w.flush(time.Minute)
			w.film("here", 3)
		}, []string{"1 STORED", "2 STALE", "3 CONFLICT"}, 3000},
		{"a guard of the caller's holds for what follows", func(w *world) {
			w.guard(2, w.films.other(3000).Etag+1)
			w.film("here", 3)
		}, []string{"1 STORED", "2 CONFLICT", "3 CONFLICT"}, 3000},
		{"a viewing goes on from what it has left, whatever its guards", func(w *world) {
			w.away(true)
			for n := range int64(3) {
				w.guard(2+n, w.films.record.Etag+uint64(n)) //nolint:gosec // not negative
			}
			w.away(false)
		}, []string{"1 STORED", "2 STORED", "3 STORED", "4 STORED"}, 4},
		{"the device slept", func(w *world) {
			time.Sleep(10 * time.Minute) // connected all the time
			w.films.other(3000)
			w.asleep.Store(int64(time.Hour))
			w.film("here", 2)
		}, []string{"1 STORED", "2 CONFLICT"}, 3000},
		{"the session goes on on another device", func(w *world) {
			w.away(true)
			w.films.another("here", 3000)
			w.film("here", 2)
			w.away(false)
		}, []string{"1 STORED", "2 CONFLICT"}, 3000},
		{"nobody tells of others", func(w *world) {
			w.films.other(3000)
			w.film("here", 2)
		}, []string{"1 STORED", "2 CONFLICT"}, 3000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, client.Config{}, func(w *world) {
				w.films = &filmService{}
				stop := w.run()
				w.film("here", 1)
				w.flush(time.Minute)
				tt.play(w)
				w.flush(10 * time.Minute)
				w.finds(tt.want, tt.at)
				_ = stop()
			})
		})
	}
}

// finds compares the answers, as "position status", and the record's position.
func (w *world) finds(want []string, at int64) {
	w.Helper()
	var got []string
	for _, a := range w.answers {
		if a.Heartbeat.ObjectId != "film" {
			continue
		}
		got = append(got, fmt.Sprint(a.Heartbeat.PositionMs, " ", a.Status.String()[len("STATUS_"):]))
	}
	if !slices.Equal(got, want) || w.films.record.GetPositionMs() != at {
		w.Errorf("told %v, want %v; the record is at %d, want %d", got, want, w.films.record.GetPositionMs(), at)
	}
}

// TestGuardsOfWhoIsToldOfOthers: a client that receives changes needs no guards, except after an interruption.
func TestGuardsOfWhoIsToldOfOthers(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(*world)
		want []string
		at   int64
	}{
		{"there all the time", func(w *world) {
			time.Sleep(10 * time.Minute)
			w.films.other(3000)
			w.film("here", 2)
		}, []string{"1 STORED", "2 STORED"}, 2},
		{"there again, and nobody was meanwhile", func(w *world) {
			w.away(true)
			w.film("here", 2) // sent before the edge sends changes
			w.away(false)
			w.flush(time.Minute)
			synctest.Wait() // for the edge's resync
			w.film("here", 3)
			w.flush(time.Minute)
			w.films.other(3000)
			w.film("here", 4)
		}, []string{"1 STORED", "2 STORED", "3 STORED", "4 STORED"}, 4},
		{"there again, and somebody was before it asked", func(w *world) {
			w.away(true)
			w.away(false)
			time.Sleep(time.Minute)
			w.films.other(3000)
			w.film("here", 2)
		}, []string{"1 STORED", "2 CONFLICT"}, 3000},
		{"there again, and somebody was before the edge told of others", func(w *world) {
			w.telling = 10 * time.Second
			w.away(true)
			w.away(false)
			time.Sleep(8 * time.Second) // to connect
			w.film("here", 2)
			w.flush(time.Second)
			w.films.other(3000)
			time.Sleep(time.Minute)
			w.film("here", 3)
		}, []string{"1 STORED", "2 STORED", "3 CONFLICT"}, 3000},
		{"there, but the edge has lost sight", func(w *world) {
			w.films.other(3000)
			w.tell(&messagev1.Change{Resync: true})
			synctest.Wait()
			w.film("here", 2)
		}, []string{"1 STORED", "2 CONFLICT"}, 3000},
		{"there, the edge has lost sight, and nobody was meanwhile", func(w *world) {
			w.tell(&messagev1.Change{Resync: true})
			synctest.Wait()
			w.film("here", 2)
			w.flush(time.Minute)
			w.films.other(3000)
			w.film("here", 3)
		}, []string{"1 STORED", "2 STORED", "3 STORED"}, 3},
		{"the user decides there", func(w *world) {
			w.away(true)
			w.films.other(3000)
			w.film("here", 2)
			w.away(false)
			w.flush(time.Minute)
			synctest.Wait() // for the edge's resync
			w.client.Seen(w.films.record)
			w.films.other(4000)
			w.film("here", 3)
		}, []string{"1 STORED", "2 CONFLICT", "3 STORED"}, 3},
		{"the user decides while nobody tells", func(w *world) {
			w.away(true)
			w.client.Seen(w.films.other(3000))
			w.films.other(4000)
			w.film("here", 2)
			w.away(false)
		}, []string{"1 STORED", "2 CONFLICT"}, 4000},
		{"the user decides while reports from before wait", func(w *world) {
			w.away(true)
			w.film("here", 2)
			other := w.films.other(3000)
			w.away(false)
			time.Sleep(10 * time.Second)
			w.client.Seen(other)
			w.film("here", 4)
		}, []string{"1 STORED", "2 STALE", "4 STORED"}, 4},
		{"a guard of the caller's holds until the record is seen", func(w *world) {
			w.guard(2, w.films.other(3000).Etag+1)
			w.flush(time.Minute)
			w.film("here", 3)
		}, []string{"1 STORED", "2 CONFLICT", "3 CONFLICT"}, 3000},
		{"a report behind a guarded one is guarded", func(w *world) {
			w.films.delay = 5 * time.Second
			other := w.films.other(3000)
			w.guard(2, other.Etag+1)
			time.Sleep(time.Second)
			w.client.Seen(other)
			w.films.other(4000)
			w.film("here", 3)
		}, []string{"1 STORED", "2 CONFLICT", "3 CONFLICT"}, 4000},
		{"it sleeps while a message is on its way", func(w *world) {
			w.films.delay = 5 * time.Second
			w.film("here", 2)
			time.Sleep(time.Second)
			w.asleep.Store(int64(time.Hour))
			w.report("another") // detects the sleep
			w.flush(time.Minute)
			w.films.other(3000)
			w.film("here", 3)
		}, []string{"1 STORED", "2 STORED", "3 CONFLICT"}, 3000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, client.Config{Changed: func(*messagev1.Change) {}}, func(w *world) {
				w.films = &filmService{}
				stop := w.run()
				w.film("here", 1)
				w.flush(time.Minute)
				tt.play(w)
				w.flush(10 * time.Minute)
				w.finds(tt.want, tt.at)
				_ = stop()
			})
		})
	}
}

// TestNoRecordThatIsKnown: a player without any answer continues from no record. Its first report stands; later
// reports conflict with other devices' newer ones.
func TestNoRecordThatIsKnown(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(*world)
		want []string
		at   int64
	}{
		{"begun offline, and nobody was there", func(w *world) {
			w.film("here", 1)
			w.film("here", 2)
		}, []string{"1 STORED", "2 STORED"}, 2},
		{"begun offline, and somebody was there before", func(w *world) {
			w.films.other(3000)
			w.film("here", 1)
			w.film("here", 2)
		}, []string{"1 STORED", "2 STORED"}, 2},
		{"begun offline, and somebody came", func(w *world) {
			w.film("here", 1)
			w.films.other(3000)
			w.film("here", 2)
		}, []string{"1 STALE", "2 CONFLICT"}, 3000},
		{"the first answer is lost, and nobody came", func(w *world) {
			w.cutBeforeTheFirstAnswer()
			w.film("here", 2)
		}, []string{"1 UNCHANGED", "2 STORED"}, 2},
		{"the first answer is lost, and somebody came", func(w *world) {
			w.cutBeforeTheFirstAnswer()
			w.films.other(3000)
			w.film("here", 2)
		}, []string{"1 STALE", "2 CONFLICT"}, 3000},
	} {
		for _, cfg := range []client.Config{{}, {Changed: func(*messagev1.Change) {}}} {
			t.Run(tt.name, func(t *testing.T) {
				bubble(t, cfg, func(w *world) {
					w.films = &filmService{}
					w.away(true)
					stop := w.run()
					tt.play(w)
					w.away(false)
					w.flush(time.Minute)
					w.finds(tt.want, tt.at)
					if n := len(w.films.reqs); n != 2 && strings.HasPrefix(tt.name, "begun offline") {
						w.Errorf("%d messages, want one for each guard", n)
					}
					_ = stop()
				})
			})
		}
	}
}

func (w *world) cutBeforeTheFirstAnswer() {
	w.films.lost = func() { w.refuse(503); w.door.Cut() }
	w.away(false)
	time.Sleep(10 * time.Second) // to connect
	w.film("here", 1)
	time.Sleep(time.Second)
}

// TestAConflictWithOneself: a full queue drops a report whose answer was lost. Later reports conflict with it,
// which the client resolves by itself.
func TestAConflictWithOneself(t *testing.T) {
	bubble(t, client.Config{Queue: 200}, func(w *world) {
		w.films = &filmService{}
		stop := w.run()
		w.cutBeforeTheFirstAnswer()
		for n := range int64(250) {
			w.film("here", 2+n)
		}
		w.away(false)
		w.flush(time.Minute)
		w.untroubled()
		if len(w.answers) != 251 || w.films.record.PositionMs != 251 {
			w.Errorf("the record is at %d after %d answers", w.films.record.PositionMs, len(w.answers))
		}
		_ = stop()
	})
}

// TestAConflictWithWhatWasRefused: a report is stored, but its answer is a refusal. The client resolves the
// next viewing's conflict with it while it remembers the report.
func TestAConflictWithWhatWasRefused(t *testing.T) {
	for _, tt := range []struct {
		refused int
		want    messagev1.Status
	}{
		{1, messagev1.Status_STATUS_STORED},
		{200, messagev1.Status_STATUS_STORED},
		{201, messagev1.Status_STATUS_CONFLICT},
	} {
		t.Run(fmt.Sprint(tt.refused), func(t *testing.T) {
			bubble(t, client.Config{Queue: 200}, func(w *world) {
				w.films = &filmService{}
				w.behind(served(w.refuseFirst(tt.refused)), nil)
				stop := w.run()
				for n := range tt.refused + 1 {
					w.film(fmt.Sprint("viewing ", n), int64(n+1))
					w.flush(time.Minute)
				}
				if last := w.answers[tt.refused]; last.Status != tt.want {
					t.Errorf("told %v, want %v", last, tt.want)
				}
				_ = stop()
			})
		})
	}
}

// refuseFirst refuses the given number of messages, but stores the first of them.
func (w *world) refuseFirst(messages int) func(*messagev1.StreamRequest) *messagev1.StreamResponse {
	n := 0
	return func(req *messagev1.StreamRequest) *messagev1.StreamResponse {
		resp := &messagev1.StreamResponse{}
		if n++; n == 1 || n > messages {
			resp.Result = w.films.apply(&messagev1.ApplyRequest{Heartbeats: req.Heartbeats, ReturnRecords: true})
		}
		if n <= messages {
			return failed(messagev1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE, 0)
		}
		return resp
	}
}

// TestAConflictWithWhatWasDropped: a full queue drops a stored report whose answer was lost. The client
// resolves the conflicts of later viewings with it.
func TestAConflictWithWhatWasDropped(t *testing.T) {
	bubble(t, client.Config{Queue: 200}, func(w *world) {
		w.films = &filmService{}
		stop := w.run()
		w.cutBeforeTheFirstAnswer()
		for n := range int64(500) {
			w.film(fmt.Sprint("viewing ", n), 2+n)
		}
		w.away(false)
		w.flush(time.Minute)
		w.untroubled()
		if len(w.answers) != 501 || w.films.record.PositionMs != 501 {
			w.Errorf("the record is at %d after %d answers", w.films.record.PositionMs, len(w.answers))
		}
		_ = stop()
	})
}

// TestTheFirstReportIsPutBack: a report that follows the first one continues from its record, even if the first
// one was postponed.
func TestTheFirstReportIsPutBack(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.films = &filmService{delay: 5 * time.Second, failed: true}
		w.films.other(3000)
		w.film("here", 1)
		w.film("here", 2)
		stop := w.run()
		time.Sleep(7 * time.Second) // the first one was postponed
		w.film("again", 3)
		w.flush(time.Minute)
		w.finds([]string{"1 STORED", "2 STORED", "3 STORED"}, 3)
		_ = stop()
	})
}

// TestTheFirstReportIsGivenUp: reports made offline overwrite an older record, even if the queue dropped the first.
func TestTheFirstReportIsGivenUp(t *testing.T) {
	bubble(t, client.Config{Queue: 200}, func(w *world) {
		w.films = &filmService{}
		w.films.other(500)
		for n := range int64(250) {
			w.film("here", 1000*(n+1))
		}
		stop := w.run()
		w.flush(time.Minute)
		w.untroubled()
		if w.films.record.PositionMs != 250_000 {
			w.Errorf("the record is at %d, want 250000", w.films.record.PositionMs)
		}
		_ = stop()
	})
}

// TestSeenBetweenConflicts: the user's decision stands, even if earlier reports conflict later.
func TestSeenBetweenConflicts(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.films = &filmService{}
		stop := w.run()
		w.film("here", 1)
		w.flush(time.Minute)
		w.away(true)
		w.films.other(3000)
		w.film("here", 2)
		w.film("again", 3) // goes in a separate message
		w.told = func(a client.Answer) { w.told = nil; w.client.Seen(a.Record) }
		w.away(false)
		w.flush(time.Minute)
		w.film("here", 4)
		w.flush(time.Minute)
		w.finds([]string{"1 STORED", "2 CONFLICT", "3 CONFLICT", "4 STORED"}, 4)
		_ = stop()
	})
}

// TestGuardsOfRequests: requests receive no changes, so the guard stays.
func TestGuardsOfRequests(t *testing.T) {
	bubble(t, client.Config{Changed: func(*messagev1.Change) {}}, func(w *world) {
		w.films, w.post = &filmService{}, w.upload
		w.refuse(http.StatusUpgradeRequired)
		stop := w.run()
		for n := range int64(3) {
			w.film("here", n+1)
			w.flush(time.Minute)
		}
		w.films.other(3000)
		w.film("here", 4)
		w.flush(time.Minute)
		w.finds([]string{"1 STORED", "2 STORED", "3 STORED", "4 CONFLICT"}, 3000)
		_ = stop()
	})
}

// TestSeen: a record read before the first connection guards later reports.
func TestSeen(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.films = &filmService{}
		w.client.Seen(nil)
		w.client.Seen(w.films.other(1000))
		w.film("here", 1001)
		time.Sleep(time.Second)
		w.films.other(3000)
		w.film("here", 1002)
		stop := w.run()
		w.flush(time.Minute)
		if last := w.answers[1]; last.Status != messagev1.Status_STATUS_CONFLICT || last.Record.GetPositionMs() != 3000 {
			t.Errorf("told %v", last)
		}
		_ = stop()
	})
}

// TestAGuardOutlivesItsReport: a dropped report passes its guard to the next one of its object.
func TestAGuardOutlivesItsReport(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(*world)
		at   int64
	}{
		{"somebody was there", func(w *world) { w.films.other(3000) }, 3000},
		{"nobody was there", func(*world) {}, 501},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, client.Config{Queue: 200}, func(w *world) {
				w.films = &filmService{}
				stop := w.run()
				w.film("here", 1)
				w.flush(time.Minute)
				w.away(true)
				tt.play(w)
				for n := range int64(500) {
					w.film("again", 2+n)
				}
				w.away(false)
				w.flush(time.Minute)
				if w.films.record.PositionMs != tt.at || len(w.answers) != 501 {
					t.Errorf("the record is at %d after %d answers", w.films.record.PositionMs, len(w.answers))
				}
				_ = stop()
			})
		})
	}
}

// TestAnotherViewingOnTheSameDevice: the client does not own a record of another viewing on its device.
func TestAnotherViewingOnTheSameDevice(t *testing.T) {
	bubble(t, client.Config{Device: "tv"}, func(w *world) {
		w.films = &filmService{}
		stop := w.run()
		w.film("here", 1)
		w.flush(time.Minute)
		w.films.other(3000) // on the tv
		w.film("here", 2)
		w.flush(time.Minute)
		w.finds([]string{"1 STORED", "2 CONFLICT"}, 3000)
		_ = stop()
	})
}

// TestHowManyRecordsAreKnown: the client remembers as many records as the queue is long, the latest ones.
func TestHowManyRecordsAreKnown(t *testing.T) {
	bubble(t, client.Config{Queue: 200}, func(w *world) {
		for n := range uint64(300) {
			w.client.Seen(&messagev1.Item{Object: &messagev1.Object{Id: fmt.Sprint(n), Type: 1}, Etag: n + 1})
		}
		w.report("299", "101", "99")
		stop := w.run()
		w.flush(time.Minute)
		for i, want := range []uint64{300, 102, 0} {
			if got := w.stored[i]; got.IfMatch != want {
				w.Errorf("sent %v, want guard %d", got, want)
			}
		}
		_ = stop()
	})
}

func TestNoRecords(t *testing.T) {
	bubble(t, client.Config{NoRecords: true}, func(w *world) {
		w.films = &filmService{}
		stop := w.run()
		w.film("here", 1)
		w.flush(time.Minute)
		w.away(true)
		w.films.other(3000)
		w.film("here", 2)
		w.away(false)
		w.flush(time.Minute)
		w.guard(3, w.films.record.Etag)
		w.flush(time.Minute)
		w.film("here", 4) // guarded too
		w.flush(time.Minute)
		for i, guarded := range []bool{false, false, true, true} {
			if r := w.films.reqs[i]; r.ReturnRecords != guarded || (r.Heartbeats[0].IfMatch != 0) != guarded {
				t.Errorf("message %d: %v, want one that is guarded and asks for records: %v", i, r, guarded)
			}
		}
		w.finds([]string{"1 STORED", "2 STORED", "3 STORED", "4 STORED"}, 4)
		_ = stop()
	})
}
