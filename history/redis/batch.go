package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// split divides indices 0 to n-1 into parts for one command each: in a cluster of one bucket, on one server of any.
// Within a part, indices for which first holds come first; first may be nil.
func (c *Cache) split(buckets []history.Bucket, first func(i int) bool) [][]int {
	order := make([]int, len(buckets))
	for i := range order {
		order[i] = i
	}
	slot := func(int) history.Bucket { return 0 }
	if c.config.Cluster {
		slot = func(i int) history.Bucket { return buckets[i] }
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(slot(i), slot(j)) })
	}
	var parts [][]int
	for len(order) > 0 {
		n := 1
		for n < len(order) && n < portion && slot(order[n]) == slot(order[0]) {
			n++
		}
		parts = append(parts, order[:n])
		order = order[n:]
	}
	if first != nil {
		for _, part := range parts {
			forward(part, first)
		}
	}
	return parts
}

// forward moves matching indices to the front, in any order.
func forward(part []int, first func(i int) bool) {
	n := 0
	for i, v := range part {
		if first(v) {
			part[n], part[i] = v, part[n]
			n++
		}
	}
}

// portion is the maximum number of keys of a script or MGET. Larger calls gain nothing and block other clients.
const portion = 32

// inSegments makes one call per part, all in one exchange per node, and passes the results to read. Calls that hit
// a moving slot are retried with one index each.
func (c *Cache) inSegments(ctx context.Context, parts [][]int, calls func(parts [][]int) []*goredis.Cmd, read func(call *goredis.Cmd, part []int)) {
	end := c.retryUntil(ctx)
	for backoff := (run.Backoff{First: firstWait, Longest: longestWait}); len(parts) > 0; {
		made, wait := calls(parts), backoff.Next(ctx)
		exec(ctx, c, made)
		var again [][]int
		for p, call := range made {
			if keysApart(call.Err()) && time.Now().Add(wait).Before(end) {
				again = append(again, singly(parts[p])...)
			} else {
				read(call, parts[p])
			}
		}
		if parts = again; len(parts) > 0 {
			run.Sleep(ctx, wait)
		}
	}
}

func singly(part []int) [][]int {
	parts := make([][]int, len(part))
	for i := range part {
		parts[i] = part[i : i+1]
	}
	return parts
}

// run calls one script.
func (c *Cache) run(ctx context.Context, cmd *goredis.Cmd) error {
	return c.runAll(ctx, []*goredis.Cmd{cmd})
}

// runAll calls indivisible scripts and returns the first error.
func (c *Cache) runAll(ctx context.Context, cmds []*goredis.Cmd) error {
	all := make([]int, len(cmds))
	for i := range cmds {
		all[i] = i
	}
	c.inSegments(ctx, singly(all), func(parts [][]int) []*goredis.Cmd {
		picked := make([]*goredis.Cmd, len(parts))
		for p, part := range parts {
			picked[p] = cmds[part[0]]
		}
		return picked
	}, func(*goredis.Cmd, []int) {})
	return firstErr(cmds)
}

func firstErr[C goredis.Cmder](calls []C) error {
	for _, call := range calls {
		if err := call.Err(); err != nil {
			return err
		}
	}
	return nil
}

// exec sends commands in one pipeline per node; each gets its own result. Calls of scripts that a server forgot are
// repeated after a reload. A server that is not yet known, because its first slot is moving there, gets the
// script's text. exec reports whether any call was repeated, and hence ran after the others.
func exec[C goredis.Cmder](ctx context.Context, c *Cache, cmds []C) (repeated bool) {
	pipeline(ctx, c, cmds)
	for try := range 3 {
		if cmds = failing(cmds, withoutScript); len(cmds) == 0 {
			return try > 0
		}
		if try == 0 {
			_ = c.loadScripts(ctx) // unreachable nodes fail again below
		} else {
			for _, cmd := range cmds {
				c.inlineScript(cmd)
			}
		}
		pipeline(ctx, c, cmds)
	}
	return true
}

// failing returns the commands whose errors match.
func failing[C goredis.Cmder](cmds []C, so func(error) bool) (some []C) {
	for _, cmd := range cmds {
		if so(cmd.Err()) {
			some = append(some, cmd)
		}
	}
	return some
}

func withoutScript(err error) bool { return goredis.HasErrorPrefix(err, "NOSCRIPT") }

// inlineScript replaces a call's digest with the script's text.
func (c *Cache) inlineScript(cmd goredis.Cmder) {
	args := cmd.Args()
	digest, ok := args[1].(string)
	if p, pointer := args[1].(*string); pointer {
		digest, ok = *p, true
	}
	for _, s := range c.scripts.all() {
		if ok && s.digest == digest {
			args[0], args[1] = "eval", s.text
		}
	}
}

// pipeline sends commands. Those on a connection that turns out to be closed are sent once more.
func pipeline[C goredis.Cmder](ctx context.Context, c *Cache, cmds []C) {
	for range 2 {
		pipe := c.client.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, once{cmd}) // only queues it
		}
		_, _ = pipe.Exec(ctx) // the commands carry the errors
		if cmds = failing(cmds, cutOff); len(cmds) == 0 {
			return
		}
	}
}

// cutOff reports whether the connection closed before the answer.
func cutOff(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && !op.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// once disables the client's own retries, except redirects. After a timeout the client would resend the whole
// pipeline to a server that is already slow. After TRYAGAIN it would also resend commands already sent elsewhere,
// and read two answers into one command concurrently.
type once struct{ goredis.Cmder }

// NoRetry applies to the whole pipeline.
func (o once) NoRetry() bool { return true }

// SetErr hides TRYAGAIN from the client.
func (o once) SetErr(err error) {
	if goredis.HasErrorPrefix(err, "TRYAGAIN") {
		err = fmt.Errorf("%w: %s", errSlotMoving, err.Error())
	}
	o.Cmder.SetErr(err)
}

// keysApart reports whether a call did nothing because its slot is moving.
func keysApart(err error) bool {
	return errors.Is(err, errSlotMoving) || goredis.HasErrorPrefix(err, "ASK") || goredis.HasErrorPrefix(err, "MOVED")
}

var errSlotMoving = errors.New("the slot is on the move")

// While a slot moves, its keys are split between two servers. Scripts declare every key, so Redis refuses such a
// call with TRYAGAIN, even for a key that does not exist yet. These calls are retried with as few keys as possible.
const (
	firstWait   = 5 * time.Millisecond
	longestWait = 100 * time.Millisecond
)

// retryUntil returns the retry deadline for a call whose slot is moving. It leaves half of the caller's time to the
// rest of the batch.
func (c *Cache) retryUntil(ctx context.Context) time.Time {
	wait := c.config.Timeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2)
	}
	return time.Now().Add(wait)
}

// overList calls a script that declares the contents of all of a user's records. It reads the list first, and again
// if the list has grown by the time the script runs.
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
	return nil, errListChanging
}

var errListChanging = errors.New("the list of the user changes too often")

// contents returns the content keys of all records in a user's list.
func (c *Cache) contents(ctx context.Context, uid string) ([]string, error) {
	list := goredis.NewStringSliceCmd(ctx, "zrange", listKey(uid), 0, -1)
	pipeline(ctx, c, []goredis.Cmder{list})
	keys := list.Val()
	for i, member := range keys {
		keys[i] = memberKey(uid, member)
	}
	return keys, list.Err()
}

// unavailable wraps an operation's error; nil stays nil.
func unavailable(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, goredis.ErrClosed):
		return fmt.Errorf("%s: %w: %w", op, history.ErrUnavailable, history.ErrClosed)
	}
	return fmt.Errorf("%s: %w: %w", op, history.ErrUnavailable, err)
}

// loadScripts loads all scripts into all masters.
func (c *Cache) loadScripts(ctx context.Context) error { return c.each(ctx, c.loadScriptsInto) }

func (c *Cache) loadScriptsInto(ctx context.Context, node *goredis.Client) error {
	pipe := node.Pipeline()
	for _, script := range c.scripts.all() {
		pipe.ScriptLoad(ctx, script.text)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// each visits every master.
func (c *Cache) each(ctx context.Context, visit func(context.Context, *goredis.Client) error) error {
	switch client := c.client.(type) {
	case *goredis.Client:
		return visit(ctx, client)
	case *goredis.ClusterClient:
		return client.ForEachMaster(ctx, visit)
	}
	panic("redis: a client of another kind") // Config.client makes only these two
}

// master returns the server of a bucket.
func (c *Cache) master(ctx context.Context, b history.Bucket) (*goredis.Client, error) {
	switch client := c.client.(type) {
	case *goredis.Client:
		return client, nil
	case *goredis.ClusterClient:
		return client.MasterForKey(ctx, channel(b))
	}
	panic("redis: a client of another kind") // Config.client makes only these two
}

// forget reloads the client's slot map.
func (c *Cache) forget(ctx context.Context) {
	if cluster, ok := c.client.(*goredis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// texts holds the arguments of many commands in one string, to save allocations.
type texts struct {
	buf   []byte // empty; append an argument here, then call end
	all   strings.Builder
	args  []string
	first []int // index of each command's first argument
}

// newTexts allocates room for a number of commands, bytes and arguments.
func newTexts(commands, bytes, args int) *texts {
	t := &texts{args: make([]string, 0, args), first: make([]int, 0, commands+1)}
	t.all.Grow(bytes)
	return t
}

// next begins a command.
func (t *texts) next() { t.first = append(t.first, len(t.args)) }

// end accepts the buffer as one argument.
func (t *texts) end(buf []byte) {
	t.buf = buf[:0]
	start := t.all.Len()
	t.all.Write(buf)
	t.args = append(t.args, t.all.String()[start:])
}

// commands returns the commands. Their arguments are string pointers, which need no allocation in an interface.
func (t *texts) commands(ctx context.Context) []*goredis.Cmd {
	args := make([]any, len(t.args))
	for i := range t.args {
		args[i] = &t.args[i]
	}
	t.next()
	cmds := make([]*goredis.Cmd, len(t.first)-1)
	for i := range cmds {
		from, to := t.first[i], t.first[i+1]
		cmds[i] = goredis.NewCmd(ctx, args[from:to:to]...)
	}
	return cmds
}
