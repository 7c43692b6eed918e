package allinone_test

import (
	"testing"

	"github.com/playhead/playhead/history/pebble"
)

// TestKill kills the process again and again under load. After every kill the cache
// holds all that was acknowledged. After the last one a new process archives it
// within seconds: no hold lives that could have announced it.
func TestKill(t *testing.T) {
	dir, l := t.TempDir(), newLoad(t)
	for round := range int64(4) {
		p := start(t, dir)
		stop := l.run(p.rpc)
		l.until(200 + 700*round)
		p.kill()
		stop()
		db, err := pebble.Open(dir, pebble.Config{})
		if err != nil {
			t.Fatal(err)
		}
		l.held(db.Cache())
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d heartbeats acknowledged", l.acked.Load())
	h := open(t, dir)
	l.held(h.Cache())
	h.settled(patience)
	l.archived(h.Cache(), h.Archive())
}

// TestTerminate stops the process by SIGTERM under load: within its deadline,
// without an error, and all that was acknowledged is there.
func TestTerminate(t *testing.T) {
	dir, l := t.TempDir(), newLoad(t)
	p := start(t, dir)
	stop := l.run(p.rpc)
	l.until(500)
	if took := p.terminate(); took > drain {
		t.Errorf("stopped after %v, want at most %v", took, drain)
	}
	stop()
	h := open(t, dir)
	l.held(h.Cache())
	h.settled(patience)
	l.archived(h.Cache(), h.Archive())
}
