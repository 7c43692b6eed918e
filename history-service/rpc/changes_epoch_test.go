package rpc_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestChangesWhileEpochIsUnknown: one silent server delays the epoch lookup. The first reader waits for it; later
// ones do not, until the lookup succeeds again.
func TestChangesWhileEpochIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 4 * time.Second
		var silent atomic.Bool
		var later atomic.Bool // a new epoch has started
		s := newHouse(t).service(t, func(c *rpc.Config) {
			c.Epoch = func(context.Context) (string, error) {
				if !silent.Load() {
					return map[bool]string{false: "a", true: "b"}[later.Load()], nil
				}
				time.Sleep(silence)
				return "", errors.Join(history.ErrUnavailable, errors.New("one master is silent"))
			}
		})
		a := &app{T: t, s: s}
		a.sync(0, func() {})
		ask := func(resync bool) (took time.Duration) {
			began := time.Now()
			resp, err := s.Changes(t.Context(), &historyv1.ChangesRequest{Uid: "ann", Since: a.token})
			if err != nil || resp.GetResync() != resync {
				t.Errorf("changes: %v, %v; want resync %v", resp, err, resync)
			}
			return time.Since(began)
		}
		silent.Store(true)
		time.Sleep(time.Minute)
		if took := ask(false); took != silence {
			t.Errorf("the first reader waited %s, want %s", took, silence)
		}
		var waited time.Duration
		for range 100 {
			waited += ask(false)
			time.Sleep(silence / 10)
		}
		if waited > 0 {
			t.Errorf("a hundred others waited %s while one server is silent", waited)
		}
		silent.Store(false)
		later.Store(true)
		time.Sleep(silence + time.Second)
		ask(false) // starts the lookup
		time.Sleep(time.Second)
		ask(true)
	})
}
