package connect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs/obstest"
)

var (
	errAway    = fmt.Errorf("open: %w", history.ErrUnavailable)
	errRefused = errors.New("wrong password")
)

// away fails the given number of times, then returns last.
func away(times int, last error) func(context.Context) error {
	return func(context.Context) error {
		if times--; times >= 0 {
			return errAway
		}
		return last
	}
}

func TestEnginesAwayAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := connect.Engines{Log: slog.New(slog.NewTextHandler(&log, nil))}
		e.Add("redis", "--redis", away(0, nil))
		e.Add("hbase", "--hbase", away(20, nil))
		hung := false
		e.Add("kafka", "--kafka", func(ctx context.Context) error { // hangs once
			if hung {
				return nil
			}
			hung = true
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		if err := e.First(t.Context()); err != nil {
			t.Fatalf("First = %v, want the process to start", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("First took %v, want 5s at most", took)
		}
		checks := e.Checks("redis", "hbase")
		if err := checks["redis"](t.Context()); err != nil {
			t.Errorf("redis is not ready: %v", err)
		}
		if err := checks["hbase"](t.Context()); err == nil || !strings.Contains(err.Error(), "(set --hbase)") {
			t.Errorf("hbase: %v, want it not ready, and how to help", err)
		}
		if err := e.Run(t.Context()); err != nil {
			t.Fatalf("Run = %v", err)
		}
		if err := checks["hbase"](t.Context()); err != nil {
			t.Errorf("hbase is not ready: %v", err)
		}
		if n := strings.Count(log.String(), "engine=hbase"); n != 2 {
			t.Errorf("%d lines about hbase, want one when it was away and one when it was back:\n%s", n, log.String())
		}
	})
}

func TestEnginesThatRefuseEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connect.Engines{Log: slog.New(slog.DiscardHandler)}
		e.Add("redis", "--redis", away(0, errRefused))
		if err := e.First(t.Context()); !errors.Is(err, errRefused) || strings.Contains(err.Error(), "\n") {
			t.Errorf("First = %v, want one line that says %q", err, errRefused)
		}
		e = connect.Engines{Log: slog.New(slog.DiscardHandler)}
		e.Add("redis", "--redis", away(3, errRefused))
		if err := errors.Join(e.First(t.Context()), e.Run(t.Context())); !errors.Is(err, errRefused) {
			t.Errorf("Run = %v, want %v", err, errRefused)
		}
	})
}

// TestARefusalIsNotBlamedOnOthers: engines whose first try is cut short by another's final error are not logged.
func TestARefusalIsNotBlamedOnOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := connect.Engines{Log: slog.New(slog.NewTextHandler(&log, nil))}
		e.Add("redis", "--redis", away(0, errRefused))
		for _, name := range []string{"kafka", "hbase"} {
			e.Add(name, "--"+name, func(ctx context.Context) error {
				<-ctx.Done()
				return fmt.Errorf("open: %w: %w", history.ErrUnavailable, ctx.Err())
			})
		}
		if err := e.First(t.Context()); !errors.Is(err, errRefused) {
			t.Errorf("First = %v, want %v", err, errRefused)
		}
		if log.Len() > 0 {
			t.Errorf("others are blamed:\n%s", log.String())
		}
	})
}

func TestEnginesAllAreNeeded(t *testing.T) {
	e := connect.Engines{Log: slog.New(slog.DiscardHandler)}
	e.Add("redis", "--redis", away(0, nil))
	e.Add("hbase", "--hbase", away(1, nil))
	if err := e.All(t.Context()); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("All = %v, want hbase missed", err)
	}
}

func TestEnginesStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connect.Engines{Log: slog.New(slog.DiscardHandler)}
		e.Add("hbase", "--hbase", away(1<<30, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := e.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run = %v, want it to end with its context", err)
		}
	})
}

var errEvicts = errors.New("redis may lose acknowledged writes: it has maxmemory-policy allkeys-lru")

// TestSettingsAreLookedAtAgain: a change of settings at run time is noticed, allowed or not.
func TestSettingsAreLookedAtAgain(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var b broken
			var log strings.Builder
			e := &connect.Engines{Log: slog.New(slog.NewTextHandler(&log, nil))}
			e.Add("redis", "--redis", away(0, nil))
			e.Fit("redis", b.probe, allowed)
			reg := prometheus.NewRegistry()
			e.Register(reg)
			if err := e.First(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- e.Judge(ctx) }() // ends with ctx
			for _, step := range []struct {
				err           error
				misconfigured float64
				lines         int
			}{
				{nil, 0, 0},
				{errEvicts, 1, 1},
				{errEvicts, 1, 1},
				{errAway, 1, 1}, // leaves the settings unknown
				{nil, 0, 2},
				{errAway, 0, 2},
			} {
				b.set(step.err)
				pass(11 * time.Second)
				err := e.Checks("redis")["redis"](t.Context())
				if healthy := step.misconfigured == 0 || allowed; (err == nil) != healthy || err != nil && !errors.Is(err, errEvicts) {
					t.Errorf("allowed %v, settings %v: health %v", allowed, step.err, err)
				}
				if got := obstest.Sum(t, reg, "playhead_engine_misconfigured"); got != step.misconfigured {
					t.Errorf("allowed %v, settings %v: the gauge is %v, want %v", allowed, step.err, got, step.misconfigured)
				}
				if n := strings.Count(log.String(), "engine=redis"); n != step.lines {
					t.Errorf("allowed %v, settings %v: %d lines, want %d:\n%s", allowed, step.err, n, step.lines, log.String())
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// broken is the shared error of three engines.
type broken struct {
	mu     sync.Mutex
	err    error
	probes int
}

func (b *broken) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *broken) get() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

type cache struct {
	history.Cache
	history.Ledger
	*broken
}

func (b cache) Load(context.Context, []history.Key) []history.Entry {
	return []history.Entry{{}, {Err: b.get()}}
}

var two = []history.Key{history.UserKey("ann"), history.UserKey("bob")}

// cluster is a cache of three nodes. One of them fails its reads, its writes or both.
type cluster struct {
	history.Cache
	history.Ledger
	reads, writes *broken
}

func (cluster) Node(b history.Bucket) string { return fmt.Sprintf("10.0.0.%d:6379", b%3) }

func (c cluster) Load(_ context.Context, keys []history.Key) (entries []history.Entry) {
	for _, k := range keys {
		e := history.Entry{}
		if history.BucketOf(k.UID)%3 == 1 {
			e.Err = c.reads.get()
		}
		entries = append(entries, e)
	}
	return entries
}

func (c cluster) Write(_ context.Context, writes []history.Write) (out []history.Outcome) {
	for _, w := range writes {
		o := history.Outcome{}
		if history.BucketOf(w.Key.UID)%3 == 1 {
			o.Err = c.writes.get()
		}
		out = append(out, o)
	}
	return out
}

type archive struct {
	history.Archive
	*broken
}

func (b archive) Put(context.Context, []history.Cell) []error { return []error{nil, b.get()} }

func (b archive) Get(context.Context, []history.Key) ([]history.Entry, error) { return nil, b.get() }

func (b archive) Page(context.Context, string, history.Query) (history.Page, error) {
	return history.Page{}, b.get()
}

func (b *broken) Publish(context.Context, []history.Announcement) ([]history.Announcement, error) {
	return nil, b.get()
}

func (b *broken) probe(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes++
	return b.err
}

// watched has engines that have answered and are being judged.
type watched struct {
	*testing.T
	*connect.Engines
	broken
	log logs
	reg *prometheus.Registry
}

// logs may be read while the judge writes them.
type logs struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.String()
}

func watch(t *testing.T, fn func(w *watched)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{T: t, reg: prometheus.NewRegistry()}
		w.Engines = &connect.Engines{Log: slog.New(slog.NewTextHandler(&w.log, nil))}
		for _, name := range []string{"redis", "kafka", "hbase"} {
			w.Add(name, "--"+name, away(0, nil))
			w.Probe(name, w.probe)
		}
		w.Register(w.reg)
		if err := w.First(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Judge(ctx) }() // ends with ctx
		fn(w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pass advances the bubble's time and runs whatever is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *watched) want(name string, up bool, lines int) {
	w.Helper()
	if err := w.Checks(name)[name](w.Context()); (err == nil) != up {
		w.Errorf("health of %s: %v, want up %v", name, err, up)
	}
	gauges, err := w.reg.Gather()
	if err != nil {
		w.Fatal(err)
	}
	i := slices.IndexFunc(gauges, func(f *dto.MetricFamily) bool { return f.GetName() == "playhead_engine_degraded" })
	for _, m := range gauges[i].GetMetric() {
		if m.Label[0].GetValue() == name && (m.Gauge.GetValue() == 0) != up {
			w.Errorf("gauge of %s: %v, want up %v", name, m.Gauge.GetValue(), up)
		}
	}
	if n := strings.Count(w.log.String(), "engine="+name); n != lines {
		w.Errorf("%d lines about %s, want %d:\n%s", n, name, lines, w.log.String())
	}
}

func TestCallsTellOfAnEngine(t *testing.T) {
	tests := map[string]func(*watched){
		"redis": func(w *watched) { w.Engines.Cache(cache{broken: &w.broken}).Load(w.Context(), two) },
		"hbase": func(w *watched) { w.Engines.Archive(archive{broken: &w.broken}).Put(w.Context(), nil) },
		"kafka": func(w *watched) { _, _ = w.Publisher(&w.broken).Publish(w.Context(), nil) },
	}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			watch(t, func(w *watched) {
				for _, step := range []struct {
					err   error
					up    bool
					lines int
				}{
					{nil, true, 0},
					{errAway, false, 1},
					{context.DeadlineExceeded, false, 1},
					{nil, true, 2},
					{fmt.Errorf("%w: %w", history.ErrUnavailable, context.Canceled), true, 2},
					{fmt.Errorf("put: %w", history.ErrPermanent), true, 2}, // it answered
				} {
					w.set(step.err)
					call(w)
					pass(1001 * time.Millisecond) // one look
					w.want(name, step.up, step.lines)
				}
			})
		})
	}
}

func TestOneLostAnswerIsNoOutage(t *testing.T) {
	watch(t, func(w *watched) {
		c := w.Cache(cache{broken: &w.broken})
		for i := range 20 {
			if w.set(nil); i == 7 {
				w.set(errAway)
			}
			c.Load(w.Context(), two)
		}
		pass(time.Second) // one look
		w.want("redis", true, 0)
	})
}

// TestOneUsersLateReadsAreNoOutage: slow reads of one long history do not make an engine unavailable while
// other calls succeed.
func TestOneUsersLateReadsAreNoOutage(t *testing.T) {
	late := fmt.Errorf("%w: %w", history.ErrUnavailable, context.DeadlineExceeded)
	for _, tt := range []struct {
		name string
		read []string // users with late reads
		put  error    // result of other users' puts
		idle bool     // no other users
		up   bool
	}{
		{name: "others are answered", read: []string{"ann", "ann", "ann"}, up: true},
		{name: "there are no others", read: []string{"ann", "ann", "ann"}, idle: true},
		{name: "another one's are late too", read: []string{"ann", "ann", "bob"}},
		{name: "nor are others' puts answered", read: []string{"ann"}, put: late},
	} {
		for name, read := range map[string]func(history.Archive, string){
			"page": func(a history.Archive, uid string) { _, _ = a.Page(t.Context(), uid, history.Query{}) },
			"get":  func(a history.Archive, uid string) { _, _ = a.Get(t.Context(), []history.Key{history.UserKey(uid)}) },
		} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				watch(t, func(w *watched) {
					a := w.Archive(archive{broken: &w.broken})
					for range 2 { // looks
						if w.set(nil); !tt.idle {
							read(a, "carl")
							w.set(tt.put)
							a.Put(w.Context(), nil)
						}
						w.set(late)
						for _, uid := range tt.read {
							read(a, uid)
						}
						w.set(nil)
						pass(time.Second)
					}
					w.want("hbase", tt.up, map[bool]int{true: 0, false: 1}[tt.up])
				})
			})
		}
	}
}

// TestAnIdleEngineIsProbed: an idle engine is probed, rarely.
func TestAnIdleEngineIsProbed(t *testing.T) {
	watch(t, func(w *watched) {
		pass(time.Minute)
		if w.probes > 3*12 {
			t.Errorf("%d probes in a minute", w.probes)
		}
		w.set(errors.Join(history.ErrUnavailable, errors.New("connection refused")))
		pass(6 * time.Second)
		w.want("kafka", false, 1)
		w.set(nil)
		pass(6 * time.Second)
		w.want("kafka", true, 2)
		if !strings.Contains(w.log.String(), "away=5s") || !strings.Contains(w.log.String(), `effect="keys stay marked, the sweep archives them"`) {
			t.Errorf("the log does not tell what it meant, and for how long:\n%s", w.log.String())
		}
	})
}

// TestPartOfAnEngine fails some servers of a cluster, then all of them. An outage that becomes smaller for a moment, as
// on its way to the end, has no line.
func TestPartOfAnEngine(t *testing.T) {
	watch(t, func(w *watched) {
		var whole broken
		w.Whole("redis", whole.probe)
		part := func() bool { return w.Part("redis")(w.Context()) != nil }
		call := func() { w.Engines.Cache(cache{broken: &w.broken}).Load(w.Context(), two); pass(time.Second) }
		for _, step := range []struct {
			calls, whole error
			up, part     bool
			seconds      int
			lines        int // so far
		}{
			{nil, nil, true, false, 1, 0},
			{errAway, nil, true, true, 1, 1},
			{errAway, errAway, false, false, 1, 2},
			{errAway, nil, true, true, 3, 2},
			{errAway, errAway, false, false, 1, 2},
			{errAway, nil, true, true, 6, 3},
			{nil, nil, true, false, 1, 4},
		} {
			w.set(step.calls)
			whole.set(step.whole)
			for range step.seconds {
				call()
			}
			if err := w.Checks("redis")["redis"](w.Context()); (err == nil) != step.up || part() != step.part {
				t.Errorf("calls fail with %v, the whole with %v: health %v, part %v; want up %v, part %v", step.calls, step.whole, err, part(), step.up, step.part)
			}
			if n := strings.Count(w.log.String(), "engine=redis"); n != step.lines {
				t.Errorf("calls fail with %v, the whole with %v: %d lines, want %d:\n%s", step.calls, step.whole, n, step.lines, w.log.String())
			}
		}
		if !strings.Contains(w.log.String(), "away=12s") {
			t.Errorf("the log does not tell how long the whole outage was:\n%s", w.log.String())
		}
	})
}

// TestFailedWritesAreForgiven: an unready process may get no writes. It is ready again once reads succeed and no write
// has failed for a while.
func TestFailedWritesAreForgiven(t *testing.T) {
	watch(t, func(w *watched) {
		var writes broken
		writes.set(errAway)
		uid := "u"
		for history.BucketOf(uid)%3 != 1 { // whose writes fail
			uid += "u"
		}
		w.Engines.Cache(single{cluster{writes: &writes}}).Write(w.Context(), []history.Write{{Key: history.UserKey(uid)}})
		pass(25 * time.Second) // the probe reads, which goes well
		w.want("redis", false, 1)
		pass(20 * time.Second)
		w.want("redis", true, 2)
	})
}

// TestWritesTellOfANode: a service writes the records that it holds without a read. A node that was silent and now gets
// only writes has recovered.
func TestWritesTellOfANode(t *testing.T) {
	watch(t, func(w *watched) {
		w.Whole("redis", (&broken{}).probe)
		c, write := w.Cache(cluster{reads: &broken{}, writes: &broken{}}), []history.Write{{Key: two[0]}}
		c.Refused(c.Node(history.BucketOf(two[0].UID)), errAway)
		pass(time.Second)
		if w.Part("redis")(w.Context()) == nil {
			t.Error("a refused call does not tell of the node")
		}
		for range 3 {
			c.Write(w.Context(), write)
			pass(time.Second)
		}
		w.want("redis", true, 2)
	})
}

// single is a cluster whose nodes have no names.
type single struct{ cluster }

func (single) Node(history.Bucket) string { return "" }

// TestTheProbeTellsTheCause: callers only know that they had no answer.
func TestTheProbeTellsTheCause(t *testing.T) {
	watch(t, func(w *watched) {
		var calls broken
		calls.set(context.DeadlineExceeded)
		w.set(fmt.Errorf("%w: the table is disabled", history.ErrUnavailable))
		for _, cause := range []string{"the table is disabled", "ZooKeeper is gone"} {
			w.set(fmt.Errorf("%w: %s", history.ErrUnavailable, cause))
			for range 12 {
				w.Engines.Archive(archive{broken: &calls}).Put(w.Context(), nil)
				pass(time.Second)
			}
			if err := w.Checks("hbase")["hbase"](w.Context()); err == nil || !strings.Contains(err.Error(), cause) {
				t.Errorf("health %v, want the cause of now, %s", err, cause)
			}
		}
		if !strings.Contains(w.log.String(), "the table is disabled") {
			t.Errorf("the log does not tell the cause:\n%s", w.log.String())
		}
	})
}

// TestANodeOfACluster judges a node by what its users get, however many other calls succeed. Each change is one line
// with the node.
func TestANodeOfACluster(t *testing.T) {
	const node = "10.0.0.1:6379"
	errFull := fmt.Errorf("%w: OOM command not allowed", history.ErrUnavailable)
	var all []history.Key
	for i := range 300 {
		all = append(all, history.UserKey(fmt.Sprint("user", i)))
	}
	for name, tt := range map[string]struct {
		reads, writes error
		refused       int // calls a second that a breaker refuses
		writeEvery    int // seconds
	}{
		"it is full":                   {writes: errFull, writeEvery: 3},
		"it is silent":                 {reads: errAway, writes: errAway, writeEvery: 1},
		"its users are refused":        {refused: 5, writeEvery: 100},
		"its users are refused rarely": {refused: 1, writeEvery: 100},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(w *watched) {
				var reads, writes broken
				w.Whole("redis", (&broken{}).probe)
				c := w.Cache(cluster{reads: &reads, writes: &writes})
				second := func(n int, refused int) {
					keys := all
					if refused > 0 { // calls to the node do not reach the cache
						keys = slices.DeleteFunc(slices.Clone(all), func(k history.Key) bool { return history.BucketOf(k.UID)%3 == 1 })
					}
					for _, k := range keys {
						c.Load(w.Context(), []history.Key{k})
						if n%tt.writeEvery == 0 {
							c.Write(w.Context(), []history.Write{{Key: k}})
						}
					}
					for range refused * (1 - n%2) {
						c.Refused(node, errAway)
					}
					pass(time.Second)
				}
				reads.set(tt.reads)
				writes.set(tt.writes)
				for n := range 13 {
					second(n, tt.refused)
					if err := w.Part("redis")(w.Context()); err == nil || !strings.Contains(err.Error(), node) {
						t.Fatalf("after %d s: part %v, want %s named", n+1, err, node)
					}
				}
				if got := obstest.Sum(t, w.reg, "playhead_engine_node_degraded"); got != 1 {
					t.Errorf("%v nodes are degraded, want 1", got)
				}
				reads.set(nil)
				writes.set(nil)
				for n := range 4 {
					second(n, 0)
				}
				w.want("redis", true, 2)
				if n := strings.Count(w.log.String(), "nodes=["+node+"]"); n != 2 {
					t.Errorf("%d lines name the node, want two:\n%s", n, w.log.String())
				}
			})
		})
	}
}

// TestANodeThatIsGone: a node that has no more calls, as after a failover, counts as well once all nodes answer.
func TestANodeThatIsGone(t *testing.T) {
	watch(t, func(w *watched) {
		w.Whole("redis", (&broken{}).probe)
		c := w.Cache(cluster{reads: &broken{}, writes: &broken{}})
		c.Refused("10.0.0.9:6379", errAway)
		for range 10 {
			c.Load(w.Context(), two)
			pass(time.Second)
		}
		w.want("redis", true, 2)
	})
}

func TestAddressesHavePorts(t *testing.T) {
	e := connect.Engines{Log: slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		connect func() error
		want    string
	}{
		{func() error {
			_, err := (&connect.Redis{Addrs: []string{"10.0.0.1:6379", "10.0.0.2"}}).Connect(&e)
			return err
		}, `--redis: want host:port, got "10.0.0.2"`},
		{func() error { _, err := (&connect.Kafka{Brokers: []string{"kafka"}}).Connect(&e); return err }, `--kafka: want host:port, got "kafka"`},
		{func() error { _, err := (&connect.Kafka{Brokers: []string{"kafka:"}}).ConnectDead(&e); return err }, `--kafka: want host:port, got "kafka:"`},
	} {
		if err := tt.connect(); err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}
