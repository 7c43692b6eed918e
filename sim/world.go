// Package sim runs the real service, aggregator and job against in-memory stores, in virtual time and from one
// seed. It injects faults at every exchange and judges what clients see. See DESIGN.md in this directory.
package sim

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Config configures a world. Zero values take the defaults.
type Config struct {
	Seed  uint64
	Steps int // maximum (default 10,000)
	// Defaults: 2, 2, 2, 6, 6.
	Services, Jobs, Edges, Clients, Objects int
	// Users is the number of users. Keep is the number of records the cache keeps per user. Both are drawn by
	// default.
	Users, Keep int
	// Compactions forces the HBase adapter with segments as the archive. By default the seed decides.
	Compactions bool
	// Embed makes the world's archive; nil for the seed's choice.
	Embed func() Embedded
	// Trace receives a description of the run; nil for none.
	Trace io.Writer
	// Only restricts the decisions; nil allows all.
	Only map[decision]bool
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		v   *int
		def int
	}{{&c.Steps, 10_000}, {&c.Services, 2}, {&c.Jobs, 2}, {&c.Edges, 2}, {&c.Clients, 6}, {&c.Objects, 6}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return c
}

// traits are a seed's decisions for its whole run. Rare combinations that must coincide to fail have seeds of
// their own.
type traits struct {
	users, keep int
	// hold is the services' hold time and retain their retention of announced records. watch is the jobs' poll
	// interval for the cache's epoch, down the time before a dead process restarts.
	hold, retain, watch, down time.Duration
	queued                    int     // One message in so many asks for a queued acknowledgement.
	session                   int     // One report in so many begins a session; with 1 every report counts by itself.
	knowing                   int     // One report in so many names the record its device knows.
	grain                     int64   // Granularity of device clocks, milliseconds.
	astray                    int     // Calls per ten thousand that may go to any service instead of the user's own.
	loses                     bool    // The cache sometimes loses data.
	shaky                     bool    // Some storms lose data again and again.
	older                     bool    // The cache comes back older; no job dies then: only a job knows what it archived.
	anew, nights              int     // One rest in so many clears all users, one storm in so many is a night.
	long                      int     // Length of storms, in tenths of the usual.
	weak                      string  // Weak exchange in most storms; empty for any.
	fault                     fault   // Outcome of half of its faults; 0 for any.
	moods                     [2]mood // Repeated actions in most storms; both equal for any.
	narrow                    int     // Number of objects in most storms; 0 for any.
	sequences                 bool    // Sequences instead of storms.
	between                   int     // Sequences between two rests.
	compactions               bool    // The archive is HBase with segments.
	counts, plays             bool    // Records are counted. Plays are sent.
	// classes are the rules of classes of types.
	classes []string
}

func (s *source) traits() traits {
	d := &dice{s.draw(streamSeed)}
	t := traits{
		users: [...]int{3, 3, 2, 1}[d.n(4)], keep: [...]int{1, 3, 100, 100}[d.n(4)],
		hold:    [...]time.Duration{600 * time.Millisecond, 3 * time.Second, 20 * time.Second}[d.n(3)],
		retain:  [...]time.Duration{5 * time.Second, 2 * time.Second}[d.n(2)],
		watch:   [...]time.Duration{time.Second, 10 * time.Second}[d.n(2)],
		down:    [...]time.Duration{300 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}[d.n(3)],
		queued:  [...]int{6, 6, 2}[d.n(3)],
		session: [...]int{8, 1}[d.n(2)], knowing: [...]int{6, 2}[d.n(2)], grain: [...]int64{40, 40, 1000}[d.n(3)],
		astray: [...]int{2500, 2500, 9000}[d.n(3)],
		loses:  !d.one(3), shaky: d.one(2), older: d.one(2),
		fault: [...]fault{0, 0, landsLater, landsTwice, slow}[d.n(5)],
		anew:  [...]int{4, 1}[d.n(2)], nights: [...]int{4, 1}[d.n(2)], long: [...]int{10, 10, 50}[d.n(3)],
	}
	switch d.n(8) {
	case 0: // records archived at once are lost with an older cache
		t.loses, t.shaky, t.older, t.long = true, true, true, 50
		t.hold, t.retain, t.watch, t.down = 600*time.Millisecond, 2*time.Second, 10*time.Second, 300*time.Millisecond
	case 1: // services remember records that the cache has forgotten
		t.hold, t.retain, t.keep, t.nights, t.anew, t.astray, t.weak, t.loses = 20*time.Second, 2*time.Second, 100, 1, 4, 9000, "warm", false
	case 2: // births of users with little history land late
		t.hold, t.keep, t.anew, t.weak, t.narrow, t.loses = 600*time.Millisecond, 1, 1, "apply", 2, false
	case 3: // many devices of one user play one object
		t.users, t.narrow, t.loses, t.shaky = 1, 1, true, true
	case 4: // cell times run ahead of event times
		t.moods, t.grain, t.narrow, t.loses, t.long = [2]mood{beginning, uploading}, 1000, 2, false, 1
	case 5: // births land late while recording is switched off
		t.moods, t.weak, t.fault, t.session, t.astray, t.narrow, t.loses = [2]mood{deciding, reading}, "apply", landsLater, 1, 9000, 2, false
	}
	if t.sequences, t.between = d.one(2), 1+d.n(4); t.sequences {
		t.watch, t.loses = time.Second, !d.one(4)
		t.grain = [...]int64{1, 1, 40, 1000}[d.n(4)]
		t.users, t.keep = 1, [...]int{1, 1, 2, 100}[d.n(4)]
		t.hold = [...]time.Duration{600 * time.Millisecond, 20 * time.Second}[d.n(2)]
	}
	t.compactions = d.one(4)
	if d.one(3) {
		t.classes = classSets[d.n(len(classSets))]
	}
	if t.counts, t.plays = d.one(4), d.one(8); t.counts || t.plays {
		t.loses = false // neither is exact after that
	}
	return t
}

// World is one run.
type World struct {
	cfg        Config
	traits     traits
	src        source
	began      time.Time
	cache      *Cache
	archive    store
	embedded   *embedded   // the archive, if it is embedded
	compacting *compacting // the archive, if it is HBase
	counting   *counting   // nil without counts
	plays      []history.PlayMessage
	queue      *queue
	oracle     *oracle

	services []*service
	jobs     []*jobProcess
	edges    []*edge
	clients  []*client
	uids     []string
	born     int

	followers map[string]*follower

	rules *history.Rulebook // rules of all processes

	cacheClock clock
	epochs     atomic.Int64 // epoch of the cache
	lived      time.Time    // when the current epoch began

	mu        sync.Mutex // guards what goroutines hand over
	arrived   []*exchange
	abandoned []*exchange
	atTurns   []*turn
	left      []*member
	completed []*call
	wake      chan struct{} // capacity 1: an exchange was abandoned while time passes

	archived map[history.Key]bool // keys with a record archived in this epoch
	cold     map[string]bool      // users the cache may not know completely
	snapshot *Cache               // what the cache may return to
	pending  []*exchange
	ghosts   []*ghost
	calls    int
	steps    int
	turns    int                  // Steps of storms, and idle turns.
	rough    int                  // Faults per ten thousand exchanges.
	landing  int                  // Probability, in ten thousand, that an abandoned exchange lands.
	calm     bool                 // No more faults.
	calmed   time.Time            // Since when.
	judged   time.Time            // When the last rest ended.
	moods    [2]mood              // Repeated client actions.
	narrow   int                  // Number of objects in use.
	shaky    bool                 // The cache is lost again and again.
	weak     string               // Exchange with more faults; empty for none.
	away     [stores]atomic.Int64 // End of a store's outage, Unix nanoseconds.
	parts    [stores]awayPart     // Longer outages, for one user of a store.
	through  int                  // Service for client calls, or anyService.
	delayed  map[string]bool      // Exchanges held up unless made for a client's call.
	course   course               // Outcome of the last call's write.

	failure string

	revisions map[uint64]int // numbers of the revisions in a trace
}

// anyService leaves the choice of the service open.
const anyService = -1

// begin starts another epoch of the cache.
func (w *World) begin() {
	w.epochs.Add(1)
	clear(w.archived)
	w.lived = time.Now()
}

func (w *World) cacheEpoch() string { return fmt.Sprintf("life %d", w.epochs.Load()) }

func (w *World) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
		w.tracef("FAILURE %s", w.failure)
	}
}

func (w *World) faults() int {
	if w.calm {
		return 0
	}
	return w.rough
}

// faultsOf returns the faults per ten thousand exchanges of a kind.
func (w *World) faultsOf(what string) int {
	if !w.calm && what == w.weak {
		return max(w.rough, 6000)
	}
	return w.faults()
}

func (w *World) objects() []history.Object {
	objects := make([]history.Object, w.cfg.Objects)
	for n := range objects {
		objects[n] = history.Object{ID: string(rune('a' + n)), Type: uint32(1 + n%2)} //nolint:gosec // small
	}
	return objects
}

// call is a request in flight to a service.
type call struct {
	number int
	answer any
	err    error
	done   func(any, error)
}

// mood is a repeated client action in a storm. A storm has two, one, or none.
type mood int

const (
	deciding  mood = iota // Clear histories and switch recording.
	deleting              // Delete objects, each at its own time.
	reading               // Read pages and points.
	uploading             // Upload old reports.
	beginning             // Clear the reports and continue a millisecond later.
	moods
)

// fault is what goes wrong with an exchange. The unnamed faults together are as frequent as a named one.
type fault int

// course is the outcome of a client call's write.
type course int

const (
	goesWell   course = iota
	isSlow            // the caller waits for the write
	isLost            // the caller gets no answer, and the write lands later
	isRepeated        // done, and lands again later
	losesAnswer
	answersSlowly // done, but the caller waits for the answer
	courses
)

// The stores; each may be unavailable for a while.
const (
	cacheStore = iota
	archiveStore
	queueStore
	stores
)

var storeNames = [stores]string{"cache", "archive", "queue"}

// awayPart is an outage of one region or slot, for one user.
type awayPart struct {
	uid   string
	until time.Time
}

// process is a process that starts and dies independently.
type process struct {
	w      *World
	number int
	name   string
	clock  clock
	ctx    context.Context
	cancel context.CancelFunc
	dead   atomic.Bool
	reread atomic.Int64 // epoch of the cache in which a job last reread the queue
	down   time.Time    // time of death
}

type service struct {
	*process
	rpc  *rpc.Server
	held *aggregate.Aggregator
}

type jobProcess struct {
	*process
	compactions compactedDoor // with compaction only
	absent      bool          // dead until the cache comes back older
}

// exchange is one call of a process. Its keys are the atomic parts.
type exchange struct {
	proc  *process
	what  string
	about string // details beyond the keys
	keys  []history.Key
	// run makes a part's effect and notes its answer. fail notes a missing answer. late makes only the effect;
	// nil for reads.
	run  func(part int)
	fail func(part int, err error)
	late func(part int)
	// ready reports whether there is an answer yet; nil means always.
	ready func() bool

	by   callers   // Origin, without a client's call.
	call int       // Number of the client's call; 0 for none.
	left []int     // Parts without an answer.
	idle time.Time // Not considered before.
	over bool      // Its caller has gone on, or may.
	done chan struct{}
}

// ghost is an abandoned exchange that lands later.
type ghost struct {
	x     *exchange
	parts []int
	since time.Time
}

const partitions = 4

// queue is the log between services and jobs: messages by partition, and the group of jobs that share them.
type queue struct {
	w              *World
	messages       [partitions][]message
	committed      [partitions]int
	commitMetadata [partitions]string // of the last commits
	generation     int
	members        []*member
	joining        []*member // guarded by w.mu
}

type message struct {
	at   time.Time
	keys []history.Announcement
}

type member struct {
	proc        *process
	assignments chan *assignment // capacity 1
	assignment  *assignment
}

// assignment is a member's partitions in a generation.
type assignment struct {
	queue  *queue
	proc   *process
	number int // generation
	owned  []int
	next   [partitions]int
	ctx    context.Context
	end    context.CancelFunc
}

// client is a device of a user: it reports, keeps unanswered reports, and reads.
type client struct {
	w       *World
	number  int
	uid     string
	device  string
	offset  time.Duration // of its clock
	busy    int           // calls in flight
	offline bool
	after   time.Time // time of the next retry
	outbox  []*historyv1.Heartbeat
	done    []*historyv1.Heartbeat // recently answered; a restarted device may resend them
	refused []func()               // the judge's unanswered reads
	backup  []*historyv1.ImportedRecord

	sessions int
	session  string // current viewing; empty for none
	object   history.Object
	started  int64
	position int
	watched  int64
	etags    map[history.Object]uint64 // latest known etags
	named    map[uint64]int64          // time of each record shown, by etag
	last     int64                     // time of the last report
}

// edge batches clients' messages and forwards them.
type edge struct {
	waiting []*submission
}

type submission struct {
	client     *client
	heartbeats []*historyv1.Heartbeat
	ack        historyv1.Ack
	received   int64 // time at an edge that stamps the receipt; 0 otherwise
}

func (w *World) isAway(store int) bool { return time.Now().UnixNano() < w.away[store].Load() }

const (
	landsLater fault = 7
	landsTwice fault = 8
	slow       fault = 11
	faults     fault = 12
)

// Every decision is drawn from the seed, its stream, and its number in that stream. Without some of its decisions
// a run is otherwise the same: this lets a failure shrink.

// stream is the subject of a decision.
type stream uint8

const (
	streamPick  stream = iota // Which exchange goes on, if not the oldest.
	streamAct                 // A client acts.
	streamFault               // An exchange goes wrong.
	streamEvent               // A process, a store or a clock changes.
	streamTime                // Time passes.
	streamGhost               // An abandoned exchange lands.
	streamWire                // A call to a service goes wrong.
	streamFate                // An exchange lands after its process died.
	streamNanos
	streamEdge
	streamOther
	streamSeed     // The seed's traits.
	streamSequence // An action of a sequence.
	streamCompact  // Segments change.
	streams
)

type decision struct {
	stream stream
	n      uint64
}

type source struct {
	seed  uint64
	count [streams]uint64
	only  map[decision]bool // allowed decisions; nil for all
	taken []decision
}

func (s *source) draw(st stream) uint64 {
	n := s.count[st]
	s.count[st]++
	return mix(s.seed, st, n)
}

func (s *source) below(st stream, n int) int { return int(s.draw(st) % uint64(n)) } //nolint:gosec // both are small

// chance draws an event with a probability in ten thousandths. It returns dice for the details.
func (s *source) chance(st stream, often int) (*dice, bool) {
	d := decision{st, s.count[st]}
	x := s.draw(st)
	if x%10_000 >= uint64(often) || s.only != nil && !s.only[d] { //nolint:gosec // positive
		return nil, false
	}
	s.taken = append(s.taken, d)
	return &dice{x}, true
}

// dice are the random numbers of one decision.
type dice struct{ state uint64 }

func (d *dice) Uint64() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return scramble(d.state)
}

func (d *dice) n(n int) int { return int(d.Uint64() % uint64(n)) } //nolint:gosec // both are small

func (d *dice) one(n int) bool { return d.n(n) == 0 }

func mix(seed uint64, st stream, n uint64) uint64 {
	return scramble(scramble(scramble(seed+0x9e3779b97f4a7c15)+uint64(st)) + n)
}

// scramble is the last step of splitmix64.
func scramble(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (w *World) traced() bool { return w.cfg.Trace != nil }

func (w *World) tracef(format string, args ...any) {
	if w.cfg.Trace != nil {
		fmt.Fprintf(w.cfg.Trace, "%6d %9.3f  %s\n", w.steps, time.Since(w.began).Seconds(), strings.ReplaceAll(fmt.Sprintf(format, args...), "\x01", "."))
	}
}

// content formats a record for traces.
func (w *World) content(r *history.Record) string {
	if r == nil {
		return "nothing"
	}
	flags := ""
	if r.Partial {
		flags += " partial"
	}
	if r.CellTime != r.Version.Time() {
		flags += " cell time " + moment(r.CellTime)
	}
	if r.Deleted() {
		return fmt.Sprintf("{tombstone at %s, rev %s%s}", moment(r.Version.Time()), w.revision(r.Revision), flags)
	}
	return fmt.Sprintf("{%s at %s position %d furthest %d plays %d watched %d removed %s, rev %s%s}", r.State, moment(r.Version.Time()),
		r.Position, r.Furthest(), r.Plays(), r.Watched(), moment(r.RemovedAt), w.revision(r.Revision), flags)
}

// revision numbers revisions by first appearance. They are random, and two traces of one run must be equal.
func (w *World) revision(r uint64) string {
	if r == 0 {
		return "none"
	}
	n, known := w.revisions[r&^history.CleanBit]
	if !known {
		n = len(w.revisions) + 1
		w.revisions[r&^history.CleanBit] = n
	}
	if r&history.CleanBit != 0 {
		return fmt.Sprintf("%d clean", n)
	}
	return fmt.Sprint(n)
}

func (w *World) write(c history.Write) string {
	return fmt.Sprintf("%s on %s mark %t %s", c.Key, w.revision(c.Base), c.BeginsHold, w.content(c.Record))
}

func (w *World) outcome(o history.Outcome) string {
	switch o.Status {
	case history.Applied:
		return "applied"
	case history.Conflict:
		return fmt.Sprintf("in conflict with %s, user %s", w.content(o.Current.Record), userText(&o.Current.User))
	}
	return "no answer"
}

func userText(u *history.User) string {
	return fmt.Sprintf("{warm %t low watermark %s cleared %v pause %+v}", u.Warm, moment(u.LowWatermark.Time()), u.Cleared, u.Pause)
}

func applyText(w *World, attempts []*attempt, req *historyv1.ApplyRequest) string {
	if !w.traced() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apply %s", strings.ToLower(strings.TrimPrefix(req.Ack.String(), "ACK_")))
	for i, a := range attempts {
		fmt.Fprintf(&b, "\n                    %s/%s %s", a.uid, a.object, &a.k.fact)
		if tag := req.Heartbeats[i].IfMatch; tag != 0 {
			fmt.Fprintf(&b, " if %x", tag)
		}
	}
	return b.String()
}
