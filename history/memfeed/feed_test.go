package memfeed_test

import (
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/memfeed"
)

func TestContract(t *testing.T) {
	historytest.Feed(t, func(*testing.T) func(*testing.T) history.Feed {
		f := new(memfeed.Feed)
		return func(*testing.T) history.Feed { return f }
	})
}
