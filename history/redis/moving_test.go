package redis_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestPartedKeys has a server that temporarily refuses large calls. They are retried with fewer keys, and finally
// fail as unavailable.
func TestPartedKeys(t *testing.T) {
	fake := miniredis.RunT(t)
	var refused atomic.Int64
	var most atomic.Int64 // maximum number of keys in a call
	most.Store(1 << 30)
	fake.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		keys := 0
		if cmd == "EVALSHA" {
			keys, _ = strconv.Atoi(args[1])
		}
		if int64(keys) <= most.Load() {
			return false
		}
		refused.Add(1)
		c.WriteError("TRYAGAIN Multiple keys request during rehashing of slot")
		return true
	})
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: time.Second})
	uid, at := user(t, c), hourAgo()
	var writes []history.Write
	var keys []history.Key
	for n := range 20 {
		k := key(uid, fmt.Sprint(n))
		keys, writes = append(keys, k), append(writes, history.Write{Key: k, Record: record(at, 1)})
	}
	most.Store(5)
	put(t, c, writes...)
	var contents []history.Content
	for i, e := range c.Load(t.Context(), keys) {
		if e.Err != nil || e.Record == nil {
			t.Errorf("Load(%s): %+v", keys[i], e)
		}
		contents = append(contents, history.Content{Key: keys[i], Revision: 1})
	}
	if err := c.MarkClean(t.Context(), contents); err != nil || refused.Load() == 0 {
		t.Errorf("Settle: %v; %d calls were refused", err, refused.Load())
	}
	most.Store(0)
	_, clearErr := c.Clear(t.Context(), uid, history.Clear{Until: at})
	pauseErr := c.Pause(t.Context(), uid, history.Pause{}, history.Pause{Since: at})
	_, changesErr := c.Changes(t.Context(), uid, 0, 1)
	for name, err := range map[string]error{
		"Write":  c.Write(t.Context(), []history.Write{{Key: keys[0], Record: record(at, 2), Base: 1}})[0].Err,
		"Load":   c.Load(t.Context(), keys)[7].Err,
		"Settle": c.MarkClean(t.Context(), contents), "Clear": clearErr, "Pause": pauseErr,
		"Warm": c.Warm(t.Context(), uid, history.WarmSet{}),
		"Trim": c.Trim(t.Context(), []string{uid}), "Changes": changesErr,
	} {
		if !errors.Is(err, history.ErrUnavailable) || !strings.Contains(err.Error(), "TRYAGAIN") {
			t.Errorf("%s of keys that never come together: %v, want unavailable", name, err)
		}
	}
	most.Store(1 << 30)
}

// TestStrangeServer never knows a script by its digest, like a redirect's target without a slot of its own.
func TestStrangeServer(t *testing.T) {
	fake := miniredis.RunT(t)
	fake.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "EVALSHA" {
			return false
		}
		c.WriteError("NOSCRIPT No matching script. Please use EVAL.")
		return true
	})
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	k := key(user(t, c), "1")
	put(t, c, history.Write{Key: k, Record: record(hourAgo(), 1)})
	markClean(t, c, k, 1)
	if e := c.Load(t.Context(), []history.Key{k})[0]; !e.Record.Clean() {
		t.Errorf("Load: got %+v, want it clean", e)
	}
	if page, err := c.List(t.Context(), k.UID, history.Query{Limit: 1}); err != nil || len(page.Items) != 1 {
		t.Errorf("List: got %+v, %v", page, err)
	}
}

// TestListGrows adds a record between reading the list and running the script. The script notices, and no record is
// skipped.
func TestListGrows(t *testing.T) {
	for name, call := range map[string]int64{"Clear": 1, "Pause": 1, "Warm": 1, "Changes": 2} {
		t.Run(name, func(t *testing.T) {
			fake := miniredis.RunT(t)
			c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
			uid, at := user(t, c), hourAgo()
			put(t, c, history.Write{Key: key(uid, "1"), Record: record(at, 1)})
			late := key(uid, "2")
			var looks atomic.Int64
			fake.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
				if cmd == "EVALSHA" && looks.Add(1) == call {
					put(t, c, history.Write{Key: late, Record: record(at, 2)})
				}
				return false
			})
			var log history.Changes
			calls := map[string]func() error{
				"Clear":   func() error { _, err := c.Clear(t.Context(), uid, history.Clear{Until: at}); return err },
				"Pause":   func() error { return c.Pause(t.Context(), uid, history.Pause{}, history.Pause{Since: at}) },
				"Warm":    func() error { return c.Warm(t.Context(), uid, history.WarmSet{Pause: history.Pause{Since: at}}) },
				"Changes": func() (err error) { log, err = c.Changes(t.Context(), uid, 0, 3); return err },
			}
			if err := calls[name](); err != nil {
				t.Fatal(err)
			}
			if name == "Changes" {
				if len(log.Entries) != 2 {
					t.Errorf("the log begins as %+v, want both records in it", log)
				}
				return
			}
			if r := c.Load(t.Context(), []history.Key{late})[0].Record; (r == nil) != (name == "Clear") || r != nil && r.Revision == 2 {
				t.Errorf("the record that came late: got %+v", r)
			}
		})
	}
}
