package hbase

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/gate"
)

const (
	chunkCalls  = 500     // calls of one batch
	chunkWeight = 4 << 20 // bytes of one batch
)

// batch sends the calls, all to one server, together once a slot is free, and returns
// one result for each. ctx is that of the calls.
func (a *Archive) batch(ctx context.Context, server *server, calls []hrpc.Call) []hrpc.RPCResult {
	if len(calls) == 0 {
		return nil
	}
	if !a.prepared.Load() {
		return same(calls, fmt.Errorf("%w: hbase has not answered yet", history.ErrUnavailable))
	}
	if err := server.gate.Enter(); err != nil {
		return same(calls, err)
	}
	shut := a.servers.rows.enter(calls)
	open := calls
	if len(shut) > 0 {
		open = slices.DeleteFunc(slices.Clone(calls), func(c hrpc.Call) bool { return shut[digits(c.Key())] != nil })
	}
	results := a.exchange(ctx, server, open)
	if len(shut) == 0 {
		return results
	}
	all := make([]hrpc.RPCResult, len(calls))
	for i, c := range calls {
		if err := shut[digits(c.Key())]; err != nil {
			all[i].Error = err
			continue
		}
		all[i], results = results[0], results[1:]
	}
	return all
}

// exchange sends calls whose gates are open.
func (a *Archive) exchange(ctx context.Context, server *server, calls []hrpc.Call) []hrpc.RPCResult {
	if len(calls) == 0 {
		return nil
	}
	select {
	case server.slots <- struct{}{}:
		defer func() { <-server.slots }()
	case <-ctx.Done():
		return same(calls, ctx.Err())
	}
	start := time.Now()
	results, _ := a.client.SendBatch(ctx, calls)
	a.servers.learn(calls)
	server.gate.Leave(start, answered(results))
	a.servers.rows.leave(start, calls, results)
	return results
}

// rowGates are gates to the rows with the same two digits, which mostly are in one region: one that is away, on a
// server that answers for others, takes neither turns nor time from those.
type rowGates [maxRegions]*gate.Gate

func newRowGates(c Config) *rowGates {
	all := new(rowGates)
	for i := range all {
		all[i] = gate.New(fmt.Sprintf("hbase rows %02x", i), slog.New(slog.DiscardHandler), min(slowAfter, c.Deadline))
	}
	return all
}

// enter returns by digits why calls are not to be made.
func (g *rowGates) enter(calls []hrpc.Call) (shut map[uint8]error) {
	var asked [maxRegions]bool
	for _, c := range calls {
		d := digits(c.Key())
		if asked[d] {
			continue
		}
		asked[d] = true
		if err := g[d].Enter(); err != nil {
			if shut == nil {
				shut = make(map[uint8]error)
			}
			shut[d] = err
		}
	}
	return shut
}

// leave notes for which rows there was an answer.
func (g *rowGates) leave(start time.Time, calls []hrpc.Call, results []hrpc.RPCResult) {
	var made, heard [maxRegions]bool
	for i, c := range calls {
		d := digits(c.Key())
		made[d] = true
		heard[d] = heard[d] || answered(results[i:i+1])
	}
	for d, ok := range made {
		if ok {
			g[d].Leave(start, heard[d])
		}
	}
}

func same(calls []hrpc.Call, err error) []hrpc.RPCResult {
	results := make([]hrpc.RPCResult, len(calls))
	for i := range results {
		results[i].Error = err
	}
	return results
}

// answered reports whether anything in the results came from HBase.
func answered(results []hrpc.RPCResult) bool {
	for _, r := range results {
		if r.Error == nil || javaClass(r.Error) != "" {
			return true
		}
	}
	return false
}

// all sends the calls about one row in one batch, all of which must succeed.
func (a *Archive) all(ctx context.Context, calls []hrpc.Call) error {
	if len(calls) == 0 {
		return nil
	}
	return a.allTo(ctx, a.servers.of(calls[0].Key()), calls)
}

func (a *Archive) allTo(ctx context.Context, server *server, calls []hrpc.Call) error {
	for _, r := range a.batch(ctx, server, calls) {
		if r.Error != nil {
			return classify(r.Error)
		}
	}
	return nil
}

// cellsOf returns the cells that answer a get.
func cellsOf(r hrpc.RPCResult) ([]*hrpc.Cell, error) {
	if r.Error != nil {
		return nil, classify(r.Error)
	}
	answer, ok := r.Msg.(*pb.GetResponse)
	if !ok {
		return nil, fmt.Errorf("%w: a get was answered with %T", history.ErrUnavailable, r.Msg)
	}
	return hrpc.ToLocalResult(answer.Result).Cells, nil
}

// batched is something that goes in a batch with others to the same server.
type batched interface {
	destination() *server
	weight() int // bytes
}

// parallel divides things into batches and calls do for all of them at once. It returns
// the first error.
func parallel[T batched](all []T, do func(*server, []T) error) error {
	slices.SortStableFunc(all, func(a, b T) int { return strings.Compare(a.destination().name, b.destination().name) })
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for len(all) > 0 {
		server, n := all[0].destination(), 1
		for n < len(all) && all[n].destination() == server {
			n++
		}
		group := all[:n:n]
		for _, c := range chunks(n, func(i int) int { return group[i].weight() }) {
			wg.Go(func() {
				if err := do(server, group[c[0]:c[1]]); err != nil {
					once.Do(func() { first = err })
				}
			})
		}
		all = all[n:]
	}
	wg.Wait()
	return first
}

// chunks divides n things into ranges, each of a bounded number and weight.
func chunks(n int, weight func(i int) int) [][2]int {
	var ranges [][2]int
	from, sum := 0, 0
	for i := range n {
		w := weight(i)
		if i > from && (i-from >= chunkCalls || sum+w > chunkWeight) {
			ranges = append(ranges, [2]int{from, i})
			from, sum = i, 0
		}
		sum += w
	}
	if from < n {
		ranges = append(ranges, [2]int{from, n})
	}
	return ranges
}

// slowAfter is how long a call must have waited before it counts against the server.
const slowAfter = time.Second

// server bounds the calls to one region server. One that does not answer holds up only
// its own calls. A batch must not mix servers: the client waits for all of them, and
// sends nothing to any while it looks for one that is gone.
type server struct {
	name  string
	gate  *gate.Gate
	slots chan struct{} // of all calls
	puts  chan struct{} // of batches of cells
}

// servers finds the server of a row: the one that had the rows with the same two digits
// the last time. Until one is known, rows with the same first digit share bounds. The
// answer may be out of date, or two servers share the digits: then a batch goes to
// several servers, and all is well as long as they answer.
type servers struct {
	config Config
	rows   *rowGates

	mu     sync.Mutex
	addrs  [maxRegions]string // their addresses, by the digits
	byName map[string]*server
}

func newServers(c Config) *servers {
	return &servers{config: c, rows: newRowGates(c), byName: map[string]*server{}}
}

// of returns the server of a row.
func (l *servers) of(row []byte) *server {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.addrs[digits(row)]
	if name == "" {
		name = "rows " + string(row[:1])
	}
	if l.byName[name] == nil {
		l.byName[name] = &server{
			name: name, gate: gate.New("hbase "+name, l.config.Logger, min(slowAfter, l.config.Deadline)),
			slots: make(chan struct{}, inFlight), puts: make(chan struct{}, l.config.Puts),
		}
	}
	return l.byName[name]
}

// learn remembers which servers the calls went to.
func (l *servers) learn(calls []hrpc.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		region := c.Region()
		if region == nil {
			continue // no server was found
		}
		if server := region.Client(); server != nil {
			l.addrs[digits(c.Key())] = server.Addr()
		}
	}
}

// digits returns the number that begins every row of a user, see [history.RowKey].
func digits(row []byte) uint8 {
	n, _ := strconv.ParseUint(string(row[:2]), 16, 8)
	return uint8(n)
}

// The constructors of the client fail only for options that are not theirs.

// put stores columns of a user's row.
func (a *Archive) put(ctx context.Context, uid string, columns map[string][]byte, at uint64) *hrpc.Mutate {
	return a.putIn(ctx, uid, map[string]map[string][]byte{family: columns}, at)
}

// putIn is put for columns by family.
func (a *Archive) putIn(ctx context.Context, uid string, columns map[string]map[string][]byte, at uint64) *hrpc.Mutate {
	call, _ := hrpc.NewPut(ctx, a.table, []byte(history.RowKey(uid)), columns, hrpc.TimestampUint64(at))
	return call
}

// putRecord is putIn for a record, which in a section of a class may live shorter than the table's other cells.
func (a *Archive) putRecord(ctx context.Context, uid string, columns map[string]map[string][]byte, at uint64) *hrpc.Mutate {
	call := a.putIn(ctx, uid, columns, at)
	if ms := a.config.Rules.SectionTTL(uid); ms < history.ArchiveTTL {
		_ = hrpc.TTL(time.Duration(ms) * time.Millisecond)(call) // it fails for what is no put
	}
	return call
}

// del deletes what the columns of a user's row, or of a family without any all of them, held up
// to a time.
func (a *Archive) del(ctx context.Context, uid string, columns map[string]map[string][]byte, at uint64) hrpc.Call {
	call, _ := hrpc.NewDel(ctx, a.table, []byte(history.RowKey(uid)), columns, hrpc.TimestampUint64(at))
	return call
}

// get reads a user's row.
func (a *Archive) get(ctx context.Context, uid string, options ...func(hrpc.Call) error) hrpc.Call {
	call, _ := hrpc.NewGet(ctx, a.table, []byte(history.RowKey(uid)), options...)
	return call
}

// javaPrefix begins the client's errors that are answers of HBase. There is no type
// for them: the class of the exception is in the text.
const javaPrefix = "HBase Java exception "

const (
	doNotRetry = "org.apache.hadoop.hbase.DoNotRetryIOException"
	noFamily   = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException"
)

// javaClass returns the class of the exception that HBase answered with, "" for
// any other error.
func javaClass(err error) string {
	_, rest, _ := strings.Cut(err.Error(), javaPrefix)
	class, _, _ := strings.Cut(rest, ":")
	return class
}

// permanent reports whether HBase refused for good what was sent.
func permanent(err error) bool {
	switch javaClass(err) {
	case noFamily,
		"org.apache.hadoop.hbase.exceptions.FailedSanityCheckException",
		doNotRetry:
		return true
	}
	return false
}

// mayBeOthers reports whether a call of a batch may have failed for what another one was.
func mayBeOthers(err error) bool { return err != nil && javaClass(err) == doNotRetry }

// classify wraps err in the sentinel that says whether trying again is of use.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, history.ErrUnavailable):
		return err
	case permanent(err):
		return fmt.Errorf("%w: %s", history.ErrPermanent, brief(err))
	case errors.Is(err, gohbase.ErrClientClosed):
		return fmt.Errorf("%w: %w", history.ErrUnavailable, history.ErrClosed)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %s", history.ErrUnavailable, brief(err))
}

// brief cuts the Java stack off.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n\tat ")
	return strings.ReplaceAll(text, "\n", " ")
}
