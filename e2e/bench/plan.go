package bench

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/playhead/playhead/history-job/replay"
)

// Options say what to measure. Bin, Lib, Dir and Trace are required.
type Options struct {
	Bin      string // folder of the built commands
	Lib      string // folder of the engines' jars, filled when it lacks them
	Dir      string // folder for data: on the disk that is measured
	Trace    string // file of viewings
	PortBase int
	Quick    bool
	Only     string // what the names of the variants to measure have in them
	Rounds   int
	Began    time.Time // from which a quick run counts its time
	Log      *slog.Logger
}

// Variant is one side of a comparison.
type Variant struct {
	Side  Side
	Load  string // name
	Door  Door
	Shape Shape
}

// Shape is how heartbeats are sent: by so many workers, or one for each user when 0, each
// with one batch under way.
type Shape struct {
	Workers, Batch int
	// Rate is at how many a second the heartbeats come, whatever the store does; 0 is as
	// fast as it takes them.
	Rate int
}

// String returns the shape as the tables name it.
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

// String returns the variant as the tables name it.
func (v Variant) String() string {
	return fmt.Sprintf("%s, %s, %s %s", v.Side, v.Load, v.Door, v.Shape)
}

// Side is a system that is measured.
type Side string

// The sides: PostgreSQL, the product in one process, the product between real engines; and other
// uses of those engines that a team may consider.
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
	cold900 = "cold, 900 bytes"
	warm    = "warm" // of the users of cold, later

	histories = "newest 20 of 1,000" // read
	newcomers = "newcomers"          // beside them
	more      = "more newcomers"
)

const payload = 110 // bytes of metadata of a heartbeat, where nothing else is said

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
		Variant{OnEngines, late, WebSocket, each99}, Variant{OnEngines, trace, GRPC, small}, Variant{OnEngines, dense, GRPC, small},
		Variant{OnEngines, cold900, GRPC, small}, Variant{OnEngines, few, GRPC, single}, Variant{OnEngines, few, GRPC, twenty},
		Variant{OnHBase, cold, Client, small}, Variant{OnKafka, cold, Client, small}, Variant{OnHazelcast, cold, Client, small}, onCold)
}
