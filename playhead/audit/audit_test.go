package audit_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/playhead/audit"
)

type records = map[history.Object]audit.Seen

// server is a door with an archive that lags behind. It drops and lags only after an hour.
type server struct {
	now     map[string]records
	past    []moment // what the archive has had, the newest last
	began   time.Time
	fails   bool          // no operation is answered, and half are done
	refuses bool          // every fifth report
	loses   bool          // an acknowledged report is dropped
	keeps   bool          // an acknowledged delete is dropped
	lag     time.Duration // of the archive
	calls   int
}

type moment struct {
	at  time.Time
	all map[string]records
}

var errAway = errors.New("no answer")

// do does an operation unless a fault is in the way: with fails every third has no answer, and half of these are done.
func (s *server) do(uid string, drop bool, change func(records)) error {
	s.calls++
	faulty := time.Since(s.began) > time.Hour
	gone := s.fails && s.calls%3 == 0
	if (!gone || rand.IntN(2) == 0) && (!drop || !faulty) { //nolint:gosec // no secret
		mine := maps.Clone(s.now[uid])
		if mine == nil {
			mine = records{}
		}
		change(mine)
		s.now = maps.Clone(s.now)
		s.now[uid] = mine
		s.past = append(s.past, moment{time.Now(), s.now})
	}
	if gone {
		return errAway
	}
	return nil
}

func (s *server) Report(_ context.Context, e *history.Event) (bool, error) {
	if s.refuses && s.calls%5 == 0 {
		s.calls++
		return false, nil
	}
	return true, s.do(e.Key.UID, s.loses, func(mine records) {
		r := mine[e.Key.Object]
		if r.Position != e.Position && e.Kind == history.KindFinish { // not the same again
			r.Plays++
		}
		r.Position = e.Position
		mine[e.Key.Object] = r
	})
}

func (s *server) Delete(_ context.Context, uid string, o history.Object) error {
	return s.do(uid, s.keeps, func(mine records) { delete(mine, o) })
}

func (s *server) Clear(_ context.Context, uid string, _ int64) error {
	return s.do(uid, s.keeps, func(mine records) { clear(mine) })
}

func (s *server) List(_ context.Context, uid string) (records, error) {
	if s.calls++; s.fails && s.calls%4 == 0 {
		return nil, errAway
	}
	return s.now[uid], nil
}

// archived returns what was there a lag ago.
func (s *server) archived(_ context.Context, uid string) (all records, known bool, err error) {
	lag := time.Second
	if s.lag > 0 && time.Since(s.began) > time.Hour {
		lag = s.lag
	}
	for _, m := range slices.Backward(s.past) {
		if m.at.Before(time.Now().Add(-lag)) {
			return m.all[uid], true, nil
		}
	}
	return nil, true, nil
}

// TestAudit audits servers with faults for hours. What is acknowledged must be there, and nothing else is a finding.
func TestAudit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server server
		want   string // found; everything else is 0
	}{
		{"good", server{}, ""},
		{"answers are lost, reports refused", server{fails: true, refuses: true}, ""},
		{"archive just in time", server{lag: 5*time.Minute - time.Second}, ""},
		{"reports are lost", server{loses: true}, "lost"},
		{"reports and answers are lost", server{loses: true, fails: true}, "lost"},
		{"deletes are lost", server{keeps: true}, "resurrected"},
		{"archive late", server{lag: 5*time.Minute + 30*time.Second}, "late"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tt.server
				s.began, s.now = time.Now(), map[string]records{}
				archive := audit.Place{Name: "archive", Within: 5 * time.Minute, Read: s.archived}
				err := audit.New(audit.Config{Door: &s, Places: []audit.Place{archive}, For: 3 * time.Hour, Every: 10 * time.Second, Users: 3}).Run(t.Context())
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), " "+tt.want) || strings.Contains(err.Error(), " 0 "+tt.want)) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				for uid, mine := range s.now {
					if tt.want == "" && !s.fails && len(mine) > 0 { // a clear without an answer may leave some
						t.Errorf("%s has %d records left, want none", uid, len(mine))
					}
				}
			})
		})
	}
}

// TestNothingIsStored fails: silence would prove nothing.
func TestNothingIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{fails: true, calls: 2}
		away := audit.New(audit.Config{Door: unanswered{s}, For: time.Minute})
		if err := away.Run(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("got %v, want %v", err, errAway)
		}
	})
}

type unanswered struct{ *server }

func (unanswered) Clear(context.Context, string, int64) error { return errAway }
