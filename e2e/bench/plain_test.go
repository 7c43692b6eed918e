//go:build e2e

package bench_test

import (
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// life is the TTL of plain writes, equal to the adapter's.
const life = 90 * 24 * time.Hour

// plain stores heartbeats like a service without guarantees: list and record, in a pipeline, unconditionally.
type plain struct {
	client *goredis.Client
	tags   [history.Buckets]string
}

func openPlain(b *testing.B, addr string) *plain {
	p := &plain{client: goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2})}
	b.Cleanup(func() { _ = p.client.Close() })
	for i := range p.tags {
		p.tags[i] = fmt.Sprintf("{b%04d}:", i)
	}
	return p
}

// Write implements [history.Cache] without its guarantees.
func (p *plain) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	pipe := p.client.Pipeline()
	for i := range writes {
		w := &writes[i]
		tag, object := p.tags[history.BucketOf(w.Key.UID)], w.Key.Object.String()
		pipe.ZAdd(ctx, tag+"h:"+w.Key.UID, goredis.Z{Score: w.Record.Version.Score(), Member: object})
		pipe.Set(ctx, tag+"c:"+w.Key.UID+":"+object, wire.AppendRecord(nil, w.Record), life)
	}
	_, err := pipe.Exec(ctx)
	outcomes := make([]history.Outcome, len(writes))
	for i := range outcomes {
		outcomes[i] = history.Outcome{Status: history.Unknown, Err: err}
		if err == nil {
			outcomes[i] = history.Outcome{Status: history.Applied}
		}
	}
	return outcomes
}

const floorCommands = 400_000

// floor is a server's maximum throughput.
type floor struct {
	b    *testing.B
	addr string
}

// pairs sends the commands of plain with redis-benchmark and returns the server's time. The tool sends a single
// command, so first all of one, then of the other.
func (f floor) pairs() time.Duration {
	zadd := f.run("ZADD", "{b0000}:h:c__rand_int__", "__rand_int__", "1000000_1")
	set := f.run("SET", "{b0000}:c:c__rand_int__:1000000_1", strings.Repeat("x", 120), "EX", "7776000")
	return zadd + set
}

func (f floor) run(command ...string) time.Duration {
	host, port, err := net.SplitHostPort(f.addr)
	if err != nil {
		f.b.Fatal(err)
	}
	args := []string{"-h", host, "-p", port, "-P", "256", "-n", strconv.Itoa(floorCommands), "-r", strconv.Itoa(viewers), "--csv"}
	out, err := exec.CommandContext(f.b.Context(), "redis-benchmark", append(args, command...)...).Output()
	if err != nil {
		f.b.Fatalf("redis-benchmark: %v", err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) < 2 || len(rows[1]) < 2 {
		f.b.Fatalf("redis-benchmark says %q: %v", out, err)
	}
	rate, err := strconv.ParseFloat(rows[1][1], 64)
	if err != nil {
		f.b.Fatalf("redis-benchmark says %q: %v", out, err)
	}
	return time.Duration(floorCommands / rate * float64(time.Second))
}
