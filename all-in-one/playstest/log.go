package playstest

import (
	"fmt"
	"maps"

	"github.com/playhead/playhead/history"
)

// Read returns the plays that a reader of messages has in the end, by id, as docs/plays.md tells it to.
func Read(messages []history.PlayMessage) map[string]history.PlayMessage {
	plays, until := make(map[string]history.PlayMessage), make(map[history.Key]int64)
	for _, m := range messages {
		switch m.Kind {
		case history.PlayCompleted:
			plays[m.ID()] = m
		case history.PlayRetracted:
			delete(plays, m.ID())
		default:
			if m.At > until[m.Key] {
				until[m.Key] = m.At
				maps.DeleteFunc(plays, func(_ string, p history.PlayMessage) bool { return removes(m, p) })
			}
		}
	}
	return plays
}

// removes reports whether a delete or clear removes a play.
func removes(m, play history.PlayMessage) bool {
	o := m.Key.Object
	return play.Key.UID == m.Key.UID && play.At <= m.At && (play.Key == m.Key || o.ID == "" && (o.Type == 0 || o.Type == play.Key.Object.Type))
}

// Log is what was acknowledged. The zero Log is empty.
type Log struct {
	stay, gone map[string]history.PlayMessage
}

// Stays notes a completion that counts in the end.
func (l *Log) Stays(k history.Key, session string, at int64) { l.stay = noted(l.stay, k, session, at) }

// Gone notes a completion that is taken back or removed in the end.
func (l *Log) Gone(k history.Key, session string, at int64) { l.gone = noted(l.gone, k, session, at) }

func noted(all map[string]history.PlayMessage, k history.Key, session string, at int64) map[string]history.PlayMessage {
	if all == nil {
		all = make(map[string]history.PlayMessage)
	}
	m := history.PlayMessage{Kind: history.PlayCompleted, Key: k, Viewing: history.ViewingOf(session), At: at}
	all[m.ID()] = m
	return all
}

// Judge compares messages with the log: what a reader has in the end, and what was never reported. It returns the
// number of messages by kind.
func (l *Log) Judge(messages []history.PlayMessage) (kinds map[history.PlayKind]int, err error) {
	kinds = make(map[history.PlayKind]int)
	for _, m := range messages {
		kinds[m.Kind]++
		_, stays := l.stay[m.ID()]
		_, gone := l.gone[m.ID()]
		if m.Kind == history.PlayCompleted && !stays && !gone {
			return kinds, fmt.Errorf("%s was never reported", m.ID())
		}
	}
	got := Read(messages)
	for id, want := range l.stay {
		if m, ok := got[id]; !ok || m != want {
			return kinds, fmt.Errorf("%d plays, want %d: %s is missing", len(got), len(l.stay), id)
		}
	}
	for id := range got {
		if _, ok := l.stay[id]; !ok {
			return kinds, fmt.Errorf("%d plays, want %d: %s is gone", len(got), len(l.stay), id)
		}
	}
	return kinds, nil
}
