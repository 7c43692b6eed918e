package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// split divides indices 0 to n-1 into portions that one command may take: in a
// cluster those of one bucket, on one server any. Within a portion the indices for
// which first holds come first; first may be nil.
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

// forward moves indices to the front, in any order.
func forward(part []int, first func(i int) bool) {
	n := 0
	for i, v := range part {
		if first(v) {
			part[n], part[i] = v, part[n]
			n++
		}
	}
}

// portion is how many keys one script or MGET takes. More gain nothing, and other
// clients wait meanwhile.
const portion = 32

// inSegments makes one call for each part, all in one exchange per node, and has the answers
// read. Parts whose keys are not together are made again, one index at a time.
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

// runAll calls scripts, which cannot be divided, and returns the first error.
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

// exec sends commands in one pipeline, one exchange per node. Each command then has
// its own answer or error. Scripts that a server no longer has, because it was
// restarted or flushed, are handed over again, and their calls alone repeated. A server that
// is not known yet, because its first slot is on the way to it, gets them in full.
// It reports whether any were repeated: those came after all others then.
func exec[C goredis.Cmder](ctx context.Context, c *Cache, cmds []C) (repeated bool) {
	pipeline(ctx, c, cmds)
	for try := range 3 {
		if cmds = failing(cmds, withoutScript); len(cmds) == 0 {
			return try > 0
		}
		if try == 0 {
			_ = c.loadScripts(ctx) // a node that it did not reach answers the same again
		} else {
			for _, cmd := range cmds {
				c.inlineScript(cmd)
			}
		}
		pipeline(ctx, c, cmds)
	}
	return true
}

// failing returns the commands that failed in one way.
func failing[C goredis.Cmder](cmds []C, so func(error) bool) (some []C) {
	for _, cmd := range cmds {
		if so(cmd.Err()) {
			some = append(some, cmd)
		}
	}
	return some
}

func withoutScript(err error) bool { return goredis.HasErrorPrefix(err, "NOSCRIPT") }

// inlineScript has a call carry its script instead of the digest.
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

// pipeline sends commands once. Those whose connection turns out to have ended, as a pooled one may have
// unnoticed, are sent once more.
func pipeline[C goredis.Cmder](ctx context.Context, c *Cache, cmds []C) {
	for range 2 {
		pipe := c.client.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, once{cmd}) // only queues it
		}
		_, _ = pipe.Exec(ctx) // the first of the errors that the commands have
		if cmds = failing(cmds, cutOff); len(cmds) == 0 {
			return
		}
	}
}

// cutOff reports whether a command was not answered because its connection has ended.
func cutOff(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && !op.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// once is a command that the client does not send again by itself but where the server says so. After an answer
// that is late it would send all of a pipeline again, to a server that has too much to do as it is. And where the
// first is answered TRYAGAIN, it would repeat also those that it has just sent to another server, and read two
// answers into one at once.
type once struct{ goredis.Cmder }

// NoRetry holds for the pipeline that the command is in.
func (o once) NoRetry() bool { return true }

// SetErr hides the error from the client.
func (o once) SetErr(err error) {
	if goredis.HasErrorPrefix(err, "TRYAGAIN") {
		err = fmt.Errorf("%w: %s", errSlotMoving, err.Error())
	}
	o.Cmder.SetErr(err)
}

// keysApart reports whether the keys of a call are not together, or were not found where the
// client has been sent: it has done nothing.
func keysApart(err error) bool {
	return errors.Is(err, errSlotMoving) || goredis.HasErrorPrefix(err, "ASK") || goredis.HasErrorPrefix(err, "MOVED")
}

var errSlotMoving = errors.New("the slot is on the move")

// While a slot moves from one server of a cluster to another, some of its keys are here and
// some there. Every key that a script touches is among its KEYS, so that a script whose keys
// are not together does nothing, and the answer is TRYAGAIN: also where one of them exists
// nowhere yet. Such calls are made again for a while, with as few keys as possible.
const (
	firstWait   = 5 * time.Millisecond
	longestWait = 100 * time.Millisecond
)

// retryUntil returns until when a call whose keys are apart is made again. Half of the caller's
// time is left for the others of its batch.
func (c *Cache) retryUntil(ctx context.Context) time.Time {
	wait := c.config.Timeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2)
	}
	return time.Now().Add(wait)
}

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
	return nil, errListChanging
}

var errListChanging = errors.New("the list of the user changes too often")

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

// unavailable wraps the error of an operation, nil stays nil.
func unavailable(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, goredis.ErrClosed):
		return fmt.Errorf("%s: %w: %w", op, history.ErrUnavailable, history.ErrClosed)
	}
	return fmt.Errorf("%s: %w: %w", op, history.ErrUnavailable, err)
}

// loadScripts loads all scripts into all servers that take writes.
func (c *Cache) loadScripts(ctx context.Context) error { return c.each(ctx, c.loadScriptsInto) }

func (c *Cache) loadScriptsInto(ctx context.Context, node *goredis.Client) error {
	pipe := node.Pipeline()
	for _, script := range c.scripts.all() {
		pipe.ScriptLoad(ctx, script.text)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// each visits every server that takes writes.
func (c *Cache) each(ctx context.Context, visit func(context.Context, *goredis.Client) error) error {
	switch client := c.client.(type) {
	case *goredis.Client:
		return visit(ctx, client)
	case *goredis.ClusterClient:
		return client.ForEachMaster(ctx, visit)
	}
	panic("redis: a client of another kind") // Config.client makes these two
}

// master returns the server that has a bucket.
func (c *Cache) master(ctx context.Context, b history.Bucket) (*goredis.Client, error) {
	switch client := c.client.(type) {
	case *goredis.Client:
		return client, nil
	case *goredis.ClusterClient:
		return client.MasterForKey(ctx, channel(b))
	}
	panic("redis: a client of another kind") // Config.client makes these two
}

// forget has the client ask again which server has what.
func (c *Cache) forget(ctx context.Context) {
	if cluster, ok := c.client.(*goredis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// texts holds the arguments of many commands in one piece of memory, because there
// are several for each key.
type texts struct {
	buf   []byte
	ends  []int // of the arguments in buf
	first []int // arguments of the commands
}

// newTexts expects so many commands, bytes and arguments.
func newTexts(commands, bytes, args int) *texts {
	return &texts{buf: make([]byte, 0, bytes), ends: make([]int, 0, args), first: make([]int, 0, commands+1)}
}

// next begins a command.
func (t *texts) next() { t.first = append(t.first, len(t.ends)) }

// end takes the buffer with one more argument.
func (t *texts) end(buf []byte) {
	t.buf = buf
	t.ends = append(t.ends, len(buf))
}

// args returns the arguments as pointers to strings, which take no memory of their
// own as interface values.
func (t *texts) args() []any {
	all, strs, args := string(t.buf), make([]string, len(t.ends)), make([]any, len(t.ends))
	from := 0
	for i, end := range t.ends {
		strs[i] = all[from:end]
		args[i] = &strs[i]
		from = end
	}
	return args
}

// commands returns what was begun.
func (t *texts) commands(ctx context.Context) []*goredis.Cmd {
	args := t.args()
	t.next()
	cmds := make([]*goredis.Cmd, len(t.first)-1)
	for i := range cmds {
		from, to := t.first[i], t.first[i+1]
		cmds[i] = goredis.NewCmd(ctx, args[from:to:to]...)
	}
	return cmds
}
