package redis

import (
	"context"

	goredis "github.com/redis/go-redis/v9"
)

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
