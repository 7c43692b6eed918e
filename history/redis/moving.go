package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// While a slot moves from one server of a cluster to another, some of its keys are here and
// some there. Every key that a script touches is among its KEYS, so that a script whose keys
// are not together does nothing, and the answer is TRYAGAIN: also where one of them exists
// nowhere yet. Such calls are made again for a while, with as few keys as possible.
const (
	shortRest = 5 * time.Millisecond
	longRest  = 100 * time.Millisecond
)

// parted reports whether the keys of a call are not together, or were not found where the
// client has been sent: it has done nothing.
func parted(err error) bool {
	return errors.Is(err, errParted) || goredis.HasErrorPrefix(err, "ASK") || goredis.HasErrorPrefix(err, "MOVED")
}

var errParted = errors.New("the slot is on the move")

// single is a call that the client does not make again by itself. Where the first of a
// pipeline is answered TRYAGAIN, the client would repeat all of it, also those calls that it
// has just sent to another server, and read two answers into one call at once.
type single struct{ *goredis.Cmd }

// SetErr hides the error from the client.
func (s single) SetErr(err error) {
	if goredis.HasErrorPrefix(err, "TRYAGAIN") {
		err = fmt.Errorf("%w: %s", errParted, err.Error())
	}
	s.Cmd.SetErr(err)
}

// patience returns until when a call with parted keys is made again. Half of the caller's
// time is left for the others of its batch.
func (c *Cache) patience(ctx context.Context) time.Time {
	wait := c.config.Timeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2)
	}
	return time.Now().Add(wait)
}

// inParts makes one call for each part, all in one exchange per node, and has the answers
// read. Parts whose keys are not together are made again, one index at a time.
func (c *Cache) inParts(ctx context.Context, parts [][]int, calls func(parts [][]int) []*goredis.Cmd, read func(call *goredis.Cmd, part []int)) {
	end := c.patience(ctx)
	for wait := shortRest; len(parts) > 0; wait = min(2*wait, longRest) {
		made := calls(parts)
		exec(ctx, c, made)
		var again [][]int
		for p, call := range made {
			if parted(call.Err()) && time.Now().Add(wait).Before(end) {
				again = append(again, apart(parts[p])...)
			} else {
				read(call, parts[p])
			}
		}
		if parts = again; len(parts) > 0 {
			rest(ctx, wait)
		}
	}
}

func apart(part []int) [][]int {
	parts := make([][]int, len(part))
	for i := range part {
		parts[i] = part[i : i+1]
	}
	return parts
}

// rest waits, less when ctx is done.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// run calls one script.
func (c *Cache) run(ctx context.Context, cmd *goredis.Cmd) error {
	return c.runAll(ctx, []*goredis.Cmd{cmd})
}

// runAll calls scripts, which cannot be divided, and returns the first error.
func (c *Cache) runAll(ctx context.Context, cmds []*goredis.Cmd) error {
	all := make([]int, len(cmds))
	for i := range cmds {
		all[i] = i
	}
	c.inParts(ctx, apart(all), func(parts [][]int) []*goredis.Cmd {
		picked := make([]*goredis.Cmd, len(parts))
		for p, part := range parts {
			picked[p] = cmds[part[0]]
		}
		return picked
	}, func(*goredis.Cmd, []int) {})
	return firstErr(cmds)
}

var errRestless = errors.New("the list of the user changes too often")

// overList calls a script that goes through all of a user's records, whose contents must be
// among its keys: the list is read first, and again when it had one more in the script.
func (c *Cache) overList(ctx context.Context, uid string, call func(contents []string) *goredis.Cmd) (*goredis.Cmd, error) {
	for range 100 {
		contents, err := c.contents(ctx, uid)
		if err != nil {
			return nil, err
		}
		cmd := call(contents)
		if err := c.run(ctx, cmd); !errors.Is(err, goredis.Nil) {
			return cmd, err
		}
	}
	return nil, errRestless
}

// contents returns the keys of the contents of all records in a user's list.
func (c *Cache) contents(ctx context.Context, uid string) ([]string, error) {
	list := goredis.NewStringSliceCmd(ctx, "zrange", listKey(uid), 0, -1)
	pipeline(ctx, c, []goredis.Cmder{list})
	keys := list.Val()
	for i, member := range keys {
		keys[i] = memberKey(uid, member)
	}
	return keys, list.Err()
}
