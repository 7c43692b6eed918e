package bench

import (
	"fmt"
	"slices"

	"github.com/playhead/playhead/history-job/replay"
)

// Variant is one side of a comparison.
type Variant struct {
	Side  Side
	Load  string // name
	Door  Door
	Shape Shape
}

// String returns the variant as the tables name it.
func (v Variant) String() string {
	return fmt.Sprintf("%s, %s, %s %s", v.Side, v.Load, v.Door, v.Shape)
}

// Side is a system that is measured.
type Side string

// The sides: PostgreSQL, the product in one process, the product between real engines; and other
// uses of those engines that a team may consider.
const (
	OnPostgres Side = "PostgreSQL"
	AllInOne   Side = "all-in-one"
	OnEngines  Side = "engines"
	OnHBase    Side = "HBase, written through"
	OnKafka    Side = "Kafka"
	Naive      Side = "naive"
)

// needs returns the side whose servers a variant needs.
func (v Variant) needs() Side {
	if v.Side == OnHBase || v.Side == OnKafka || v.Side == Naive {
		return OnEngines
	}
	return v.Side
}

// Door is how heartbeats come in.
type Door string

// The doors. Over a WebSocket or HTTP each user has a connection. With Indexed the table of
// PostgreSQL has an index by which it finds the newest of a user.
const (
	GRPC      Door = "gRPC"
	WebSocket Door = "WebSocket"
	HTTP      Door = "HTTP"
	Client    Door = "its client,"
	SQL       Door = "SQL"
	Indexed   Door = "SQL, indexed by time,"
)

// The loads, by name.
const (
	long    = "long" // long viewings, interleaved
	long0   = "long, no metadata"
	long900 = "long, 900 bytes"
	trace   = "trace" // in the order in which it arrived
	trace0  = "trace, no metadata"
	dense   = "trace at viewers' pace"
	paced   = "paced" // long viewings at a rate
	players = "players"
	late    = "late" // of a few players with many heartbeats
	few     = "few"  // for small batches
	lasting = "lasting"
	cold    = "cold" // of users whom Redis does not know
	cold0   = "cold, no metadata"
	warm    = "warm" // of the users of cold, later

	histories = "newest 20 of 1,000" // read
	newcomers = "newcomers"          // beside them
	more      = "more newcomers"
)

const payload = 110 // bytes of metadata of a heartbeat, where nothing else is said

// load builds a load, at its first use.
func (b *bench) load(name string) *Load {
	if l := b.loads[name]; l != nil {
		return l
	}
	l := b.build(name)
	l.Name, b.loads[name] = name, l
	return l
}

func (b *bench) build(name string) *Load {
	switch n := b.sizes(); name {
	case trace:
		return NewLoad(first(b.viewings, n.trace), payload)
	case trace0:
		return NewLoad(first(b.viewings, n.trace), 0)
	case dense:
		return NewLoad(Dense(first(b.viewings, n.trace), 20_000), payload)
	case long0:
		return NewLoad(LongViewings(n.long), 0)
	case long900:
		return NewLoad(LongViewings(n.long), 900)
	case cold0:
		return NewLoad(LongViewings(n.engines), 0)
	case histories:
		return NewLoad(Histories(), payload)
	case newcomers:
		return NewLoad(viewingsOf(n.newcomers, 1), payload)
	case warm:
		vs := LongViewings(n.engines)
		for i := range vs {
			vs[i].Object.ID = "1" + vs[i].Object.ID
		}
		return NewLoad(vs, payload)
	case more:
		vs := viewingsOf(n.newcomers, 1)
		for i := range vs {
			vs[i].UID = "more" + vs[i].UID
		}
		return NewLoad(vs, payload)
	case late:
		return NewLoad(viewingsOf(n.players, 100), payload)
	default:
		return NewLoad(LongViewings(map[string]int{
			long: n.long, paced: n.paced, players: n.players, few: n.few, lasting: n.lasting, cold: n.engines,
		}[name]), payload)
	}
}

// sizes are how many heartbeats a turn has.
type sizes struct{ long, trace, paced, players, few, lasting, engines, newcomers int }

func (o Options) sizes() sizes {
	if o.Quick {
		return sizes{long: 200_000, trace: 200_000, paced: 60_000, players: 30_000, lasting: 1_000_000, engines: 100_000}
	}
	return sizes{long: 1_000_000, paced: 200_000, players: 60_000, few: 40_000, lasting: 1_000_000, engines: 300_000, newcomers: 272_000}
}

// first returns the first viewings, of about so many heartbeats; 0 is all.
func first(vs []replay.Viewing, heartbeats int) []replay.Viewing {
	n := 0
	for i, v := range vs {
		if v.Played > 0 {
			n += 2 + int(v.Played/replay.Period)
		}
		if heartbeats > 0 && n > heartbeats {
			return vs[:i]
		}
	}
	return vs
}

// The shapes.
var (
	small  = Shape{Workers: 4, Batch: 100}
	large  = Shape{Workers: 16, Batch: 200}
	twenty = Shape{Workers: 4, Batch: 20}
	single = Shape{Workers: 4, Batch: 1}
	slow   = Shape{Workers: 4, Batch: 100, Rate: 2_000}
	fast   = Shape{Workers: 4, Batch: 100, Rate: 20_000}
	each1  = Shape{Batch: 1}
	each99 = Shape{Batch: 100}
)

// alone are the comparisons of one process with PostgreSQL.
func (o Options) alone() []Variant {
	all := slices.Concat(
		both(long, small), []Variant{{OnPostgres, long, Indexed, small}},
		both(trace, small), []Variant{{AllInOne, trace0, GRPC, small}},
		both(paced, fast), []Variant{{AllInOne, players, WebSocket, each1}},
	)
	if o.Quick {
		return all
	}
	return slices.Concat(
		all, both(long, large), both(trace, large), both(long0, small), both(long900, small), both(dense, small),
		both(few, single), both(few, twenty), both(few, slow),
		[]Variant{{OnPostgres, histories, SQL, fast}, {OnPostgres, histories, Indexed, fast}, {AllInOne, histories, GRPC, fast}},
		[]Variant{{AllInOne, players, HTTP, each1}, {AllInOne, late, WebSocket, each99}, {AllInOne, late, HTTP, each99}},
	)
}

func both(load string, s Shape) []Variant {
	return []Variant{{OnPostgres, load, SQL, s}, {AllInOne, load, GRPC, s}}
}

// onDisk has what is left on the disk when nothing is written any more.
var onDisk = Variant{AllInOne, lasting, GRPC, small}

// onWarm is sent by users whom Redis knows.
var onWarm = Variant{OnEngines, warm, GRPC, small}

// onCold has the newest of users whom Redis does not know read beside 20,000 new users.
var onCold = Variant{OnEngines, histories, GRPC, small}

// together are the comparisons of the product on real engines with PostgreSQL.
func (o Options) together() []Variant {
	all := []Variant{{OnPostgres, cold, SQL, small}, {OnEngines, cold, GRPC, small}}
	if o.Quick {
		return all
	}
	return append(all, Variant{OnPostgres, cold0, SQL, small}, Variant{OnEngines, cold0, GRPC, small}, onWarm,
		Variant{OnEngines, players, WebSocket, each1}, Variant{OnEngines, players, HTTP, each1}, Variant{Naive, players, HTTP, each1},
		Variant{OnHBase, cold, Client, small}, Variant{OnKafka, cold, Client, small}, onCold)
}

// Ratios returns what the turns say about everything that is wanted. Those whose names are
// fields of [Ratios] are there whether known or not.
func (r Result) Ratios() []Ratio {
	var (
		pgLong, inLong   = pairOf(long, small)
		pgTrace, inTrace = pairOf(trace, small)
		pgDense, inDense = pairOf(dense, small)
		pgFast, inFast   = pairOf(paced, fast)
		pgSlow, inSlow   = pairOf(few, slow)
		indexed          = Variant{OnPostgres, long, Indexed, small}
		inTrace0         = Variant{AllInOne, trace0, GRPC, small}
		inLong0          = Variant{AllInOne, long0, GRPC, small}
		inLong900        = Variant{AllInOne, long900, GRPC, small}
		lone             = Variant{AllInOne, players, WebSocket, each1}
		pgCold, enCold   = Variant{OnPostgres, cold, SQL, small}, Variant{OnEngines, cold, GRPC, small}
		pgRead, inRead   = Variant{OnPostgres, histories, Indexed, fast}, Variant{AllInOne, histories, GRPC, fast}
		pgCold0, enCold0 = Variant{OnPostgres, cold0, SQL, small}, Variant{OnEngines, cold0, GRPC, small}
	)
	return []Ratio{
		r.ratio("embedded_rate_vs_postgres", 2, inLong.of("rate"), pgLong.of("rate")),
		r.ratio("  of PostgreSQL indexed by time", 0, inLong.of("rate"), indexed.of("rate")),
		r.ratio("embedded_cpu_vs_postgres", 0.55, inLong.of("archived"), pgLong.of("acked")),
		r.ratio("  until acked", 0.45, inLong.of("acked"), pgLong.of("acked")),
		r.ratio("  of PostgreSQL indexed by time", 0, inLong.of("archived"), indexed.of("acked")),
		r.ratio("trace_cpu_vs_postgres", 1.3, inTrace.of("archived"), pgTrace.of("acked")),
		r.ratio("  rate", 0.8, inTrace.of("rate"), pgTrace.of("rate")),
		r.ratio("  at viewers' pace", 0.5, inDense.of("archived"), pgDense.of("acked")),
		r.ratio("metadata_cost", 1.2, inTrace.of("archived"), inTrace0.of("archived")),
		r.ratio("  of long viewings", 1.2, inLong.of("archived"), inLong0.of("archived")),
		r.ratio("  of 900 bytes", 0, inLong900.of("archived"), inLong0.of("archived")),
		r.ratio("engines_cpu_vs_postgres", 1.2, enCold.of("acked"), pgCold.of("acked")),
		r.ratio("  without metadata", 0, enCold0.of("acked"), pgCold0.of("acked")),
		r.ratio("  of warm users", 0, onWarm.of("acked"), pgCold.of("acked")),
		r.figure("  Redis, us", 9, enCold.of("acked.redis")),
		r.figure("ws_one_cpu_us", 45, lone.of("acked")),
		r.ratio("p99_20k_vs_postgres", 1, inFast.of("p99"), pgFast.of("p99")),
		r.ratio("  2,000/s: CPU of the server", 1, inSlow.of("acked.all-in-one"), pgSlow.of("acked.postgres")),
		r.ratio("  2,000/s: p99.9", 1.5, inSlow.of("p99.9"), pgSlow.of("p99.9")),
		r.ratio("  newest 20 at 20,000/s: p99, of PostgreSQL indexed by time", 0, inRead.of("busy p99"), pgRead.of("busy p99")),
		r.ratio("  cold reader beside newcomers: p99, of a warm one's", 2, onCold.of("cold p99"), onCold.of("warm p99")),
		r.figure("puts_per_viewing", 0, inLong.of("puts")),
		r.figure("disk_vs_record", 2, onDisk.of("disk ratio")),
	}
}

func pairOf(load string, s Shape) (pg, ours Variant) {
	all := both(load, s)
	return all[0], all[1]
}
