package allinone

import (
	"context"
	"log/slog"

	"github.com/playhead/playhead/history"
)

// herald has nobody to tell who is seen for the first time on a day: in one process there
// are no others. It implements [history.Announcer].
type herald struct{ log *slog.Logger }

// Announce says how many they are.
func (h herald) Announce(_ context.Context, firsts []history.First) error {
	h.log.Debug("users were seen for the first time on a day", "users", len(firsts))
	return nil
}
