package allinone_test

import (
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// switched switches recording off or on. What became of that without an answer is not
// certain.
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

// pause is what the cache says.
func (m *machine) pause(uid string) history.Pause {
	e := m.db.Cache().Load(m.t.Context(), []history.Key{history.UserKey(uid)})[0]
	if e.Err != nil {
		m.t.Fatal(e.Err)
	}
	return e.User.Pause
}

// obeyed checks that an event was stored, or not, as its user wants. What changes
// nothing may be called so.
func (m *machine) obeyed(e *history.Event, status historyv1.Status) {
	p, certain := m.paused[e.Key.UID]
	if !certain {
		return
	}
	refused := status == historyv1.Status_STATUS_PAUSED
	if covered := p.Covers(e.At); refused && !covered || covered && status == historyv1.Status_STATUS_STORED {
		m.t.Fatalf("%s at %d: %v, recording was off from %d until %d", e.Key, e.At, status, p.Since, p.Until)
	}
}
