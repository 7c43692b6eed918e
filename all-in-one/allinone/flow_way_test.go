package allinone

import (
	"testing"

	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

// TestFlowIsNotOnTheWay: unless breakable, the process has no code of /flow in a heartbeat's path.
func TestFlowIsNotOnTheWay(t *testing.T) {
	db, err := pebble.Open(t.TempDir(), pebble.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p := &Process{db: db, queue: memqueue.New(memqueue.Config{})}
	if _, between := p.archive().(stoppableArchive); between || p.publisher() != p.queue || p.promoter() != p.db {
		t.Error("there is something before the queue, the archive or the job")
	}
}
