package redis

import (
	"context"
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

var (
	//go:embed lua/user.lua
	userLua string
	//go:embed lua/apply.lua
	applyLua string
	//go:embed lua/load.lua
	loadLua string
	//go:embed lua/clear.lua
	clearLua string
	//go:embed lua/pause.lua
	pauseLua string
	//go:embed lua/warm.lua
	warmLua string
	//go:embed lua/excess.lua
	excessLua string
	//go:embed lua/trim.lua
	trimLua string
	//go:embed lua/settle.lua
	settleLua string
	//go:embed lua/see.lua
	seeLua string
	//go:embed lua/overdue.lua
	overdueLua string
)

// script is a Lua program and the digest that servers know it by.
type script struct{ text, digest string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text: text, digest: hex.EncodeToString(sum[:])}
}

type scripts struct {
	apply, load, clear, pause, warm, excess, trim, settle, overdue, see script
}

func newScripts() scripts {
	return scripts{
		apply: newScript(userLua + applyLua), load: newScript(userLua + loadLua), clear: newScript(userLua + clearLua),
		pause: newScript(userLua + pauseLua), warm: newScript(userLua + warmLua),
		excess: newScript(excessLua), trim: newScript(userLua + trimLua),
		settle: newScript(settleLua), overdue: newScript(overdueLua), see: newScript(userLua + seeLua),
	}
}

func (s scripts) all() []script {
	return []script{s.apply, s.load, s.clear, s.pause, s.warm, s.excess, s.trim, s.settle, s.overdue, s.see}
}

// teach hands all scripts to all servers that take writes.
func (c *Cache) teach(ctx context.Context) error { return c.each(ctx, c.teachNode) }

func (c *Cache) teachNode(ctx context.Context, node *goredis.Client) error {
	pipe := node.Pipeline()
	for _, script := range c.scripts.all() {
		pipe.ScriptLoad(ctx, script.text)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// call is the call of a script. All of its keys belong to one slot, or the cache to
// one server.
func (s script) call(ctx context.Context, keys []string, args ...any) *goredis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.digest, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	return goredis.NewCmd(ctx, append(all, args...)...)
}

// exec sends commands in one pipeline, one exchange per node. Each command then has
// its own answer or error. Scripts that a server has forgotten, because it was
// restarted or flushed, are handed over again, and their calls alone repeated. A server that
// is not known yet, because its first slot is on the way to it, gets them in full.
func exec[C goredis.Cmder](ctx context.Context, c *Cache, cmds []C) {
	pipeline(ctx, c, cmds)
	for try := range 3 {
		if cmds = forgotten(cmds); len(cmds) == 0 {
			return
		}
		if try == 0 {
			_ = c.teach(ctx) // a node that it did not reach answers the same again
		} else {
			for _, cmd := range cmds {
				c.spell(cmd)
			}
		}
		pipeline(ctx, c, cmds)
	}
}

// spell has a call carry its script instead of the digest.
func (c *Cache) spell(cmd goredis.Cmder) {
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

func forgotten[C goredis.Cmder](cmds []C) []C {
	var left []C
	for _, cmd := range cmds {
		if goredis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			left = append(left, cmd)
		}
	}
	return left
}

func pipeline[C goredis.Cmder](ctx context.Context, c *Cache, cmds []C) {
	pipe := c.client.Pipeline()
	for _, cmd := range cmds {
		if call, ok := any(cmd).(*goredis.Cmd); ok {
			_ = pipe.Process(ctx, single{call})
		} else {
			_ = pipe.Process(ctx, cmd) // only queues it
		}
	}
	_, _ = pipe.Exec(ctx) // the first of the errors that the commands have
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
