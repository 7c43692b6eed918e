package sim_test

import (
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/sim"
)

// TestCache checks the simulator's cache against the adapters' contract.

func TestCache(t *testing.T) {
	historytest.Cache(t, func(_ *testing.T, keep int) historytest.CacheStore { return sim.NewCache(keep, time.Now) })
}

func TestArchive(t *testing.T) {
	historytest.Archive(t, func(*testing.T) history.Archive {
		return sim.NewArchive(func() int64 { return time.Now().UnixMilli() })
	})
}
