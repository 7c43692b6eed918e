package bench

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/playhead/playhead/history-job/replay"
)

// Options configure a run. Bin, Lib, Dir and Trace are required.
type Options struct {
	Bin      string // folder of the built commands
	Lib      string // folder of the engines' jars; filled if empty
	Dir      string // folder for data, on the disk to measure
	Trace    string // file of viewings
	PortBase int
	Quick    bool
	Only     string // substring of the variants' names
	Rounds   int
	Began    time.Time // start of a quick run's time limit
	Log      *slog.Logger
}

// Variant is one side of a comparison.
type Variant struct {
	Side  Side
	Load  string // name
	Door  Door
	Shape Shape
}

// Shape is the sending pattern: a number of workers, or one per user if 0, each with one batch in flight.
type Shape struct {
	Workers, Batch int
	// Rate is the heartbeats per second, independent of the store; 0 is as fast as the store accepts them.
	Rate int
}

// String returns the shape's name in tables.
func (s Shape) String() string {
	text := fmt.Sprintf("%d x %d", s.Workers, s.Batch)
	if s.Workers == 0 {
		text = fmt.Sprintf("each user x %d", s.Batch)
	}
	if s.Rate > 0 {
		text += fmt.Sprintf(" at %d/s", s.Rate)
	}
	return text
}

// String returns the variant's name in tables.
func (v Variant) String() string {
	return fmt.Sprintf("%s, %s, %s %s", v.Side, v.Load, v.Door, v.Shape)
}

// Side is a measured system.
type Side string

// The sides: PostgreSQL, the all-in-one, and the product between real engines. The others are alternative uses of
// those engines.
const (
	OnPostgres  Side = "PostgreSQL"
	AllInOne    Side = "all-in-one"
	OnEngines   Side = "engines"
	OnHBase     Side = "HBase, written through"
	OnKafka     Side = "Kafka"
	OnHazelcast Side = "Hazelcast, written behind"
	Naive       Side = "naive"
)

// needs returns the side whose servers a variant needs.
func (v Variant) needs() Side {
	switch v.Side {
	case OnHBase, OnKafka, OnHazelcast, Naive:
		return OnEngines
	}
	return v.Side
}

// Door is the interface that receives the heartbeats.
type Door string

// The doors. WebSocket and HTTP have a connection per user. Indexed adds a time index to PostgreSQL's table, for
// the newest records of a user. Lean has the least of a table.
const (
	GRPC      Door = "gRPC"
	WebSocket Door = "WebSocket"
	HTTP      Door = "HTTP"
	Client    Door = "its client,"
	SQL       Door = "SQL"
	Indexed   Door = "SQL, indexed by time,"
	Lean      Door = "SQL, lean,"
)

// The loads, by name.
const (
	long    = "long" // long viewings, interleaved
	long0   = "long, no metadata"
	long900 = "long, 900 bytes"
	trace   = "trace" // in order of arrival
	trace0  = "trace, no metadata"
	dense   = "trace at viewers' pace"
	paced   = "paced" // long viewings at a rate
	players = "players"
	late    = "late" // few players with many heartbeats each
	few     = "few"  // for small batches
	lasting = "lasting"
	cold    = "cold" // users unknown to Redis
	cold0   = "cold, no metadata"
	cold900 = "cold, 900 bytes"
	warm    = "warm" // the users of cold, later

	histories = "newest 20 of 1,000" // read
	newcomers = "newcomers"          // sent meanwhile
	more      = "more newcomers"
	filling   = "new records"
)

const payload = 110 // default metadata of a heartbeat, bytes

type sizes struct{ long, trace, paced, players, few, lasting, engines, newcomers, filling int }

func (o Options) sizes() sizes {
	if o.Quick {
		return sizes{long: 200_000, trace: 200_000, paced: 60_000, players: 30_000, lasting: 1_000_000, engines: 100_000, filling: 300_000}
	}
	return sizes{long: 1_000_000, paced: 200_000, players: 60_000, few: 40_000, lasting: 1_000_000, engines: 300_000, newcomers: 272_000, filling: 4_000_000}
}

// first returns the first viewings, up to a number of heartbeats; 0 returns all.
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

// alone returns the comparisons of one process with PostgreSQL.
func (o Options) alone() []Variant {
	all := slices.Concat(
		both(long, small), []Variant{{OnPostgres, long, Indexed, small}, {OnPostgres, long, Lean, small}},
		both(trace, small), []Variant{{OnPostgres, trace, Lean, small}, {AllInOne, trace0, GRPC, small}},
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

// onDisk measures the disk usage after the last write.
var onDisk = Variant{AllInOne, lasting, GRPC, small}

// onFill measures players before and after many new records.
var onFill = Variant{AllInOne, filling, GRPC, small}

// onWarm is sent by users known to Redis.
var onWarm = Variant{OnEngines, warm, GRPC, small}

// onCold reads the newest records of users unknown to Redis, during writes of 20,000 new users.
var onCold = Variant{OnEngines, histories, GRPC, small}

// together returns the comparisons of the product on real engines with PostgreSQL.
func (o Options) together() []Variant {
	all := []Variant{{OnPostgres, cold, SQL, small}, {OnEngines, cold, GRPC, small}}
	if o.Quick {
		return all
	}
	return append(all, Variant{OnPostgres, cold0, SQL, small}, Variant{OnEngines, cold0, GRPC, small}, onWarm,
		Variant{OnEngines, players, WebSocket, each1}, Variant{OnEngines, players, HTTP, each1}, Variant{Naive, players, HTTP, each1},
		Variant{OnEngines, late, WebSocket, each99}, Variant{OnEngines, trace, GRPC, small}, Variant{OnEngines, dense, GRPC, small},
		Variant{OnEngines, cold900, GRPC, small}, Variant{OnEngines, few, GRPC, single}, Variant{OnEngines, few, GRPC, twenty},
		Variant{OnHBase, cold, Client, small}, Variant{OnKafka, cold, Client, small}, Variant{OnHazelcast, cold, Client, small}, onCold)
}
