// Package sim runs the real service, aggregator and job against stores in memory, under
// virtual time and one seed, with faults at every exchange, and judges what clients were
// told and shown. See DESIGN.md beside it.
package sim

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Config says what a world is like. Zero values take the defaults.
type Config struct {
	Seed  uint64
	Steps int // how many to make at most (default 10,000)
	// How many of each there are (defaults 2, 2, 2, 6, 6).
	Services, Jobs, Edges, Clients, Objects int
	// Users is how many there are, and Keep how many records of one the cache keeps (both are drawn by default).
	Users, Keep int
	// Compactions has the archive be that of HBase, with parts, as a seed in four decides by itself.
	Compactions bool
	// Embed makes the archive of a world, nil for the model and that of HBase.
	Embed func() Embedded
	// Trace is told what happens, in words; nil for nobody.
	Trace io.Writer
	// Only are the decisions that may be taken; nil for all.
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

// traits are what a seed decides for all of its run. Things that have to come together to be
// noticed have seeds of their own, where they are not rare.
type traits struct {
	users, keep int
	// hold is how long services hold a key, retain how long they remember what they announced,
	// watch how often jobs ask for the cache's epoch, and down how long a process is away that died.
	hold, retain, watch, down time.Duration
	queued                    int     // one message in so many is to be acknowledged as queued
	session                   int     // one report in so many begins a session: where each one does, each counts
	knowing                   int     // one report in so many names the record that its device knows
	grain                     int64   // milliseconds by which the clocks of devices go on
	astray                    int     // how often, of ten thousand, a call goes to any service, and not to its user's
	loses                     bool    // the cache loses something at times: of what is lost nobody is sure
	shaky                     bool    // there are storms in which it does again and again
	older                     bool    // it comes back older: then no job dies, since nobody else knows what that one archived
	anew, nights              int     // one rest in so many has all users begin anew, one storm in so many a night
	long                      int     // tenths of the usual length that its storms have
	weak                      string  // what is weak in most storms, empty for anything
	fault                     fault   // what goes wrong with half of that, 0 for anything
	moods                     [2]mood // what clients do again and again in most storms, the same twice for anything
	narrow                    int     // how many objects they have in most storms, 0 for any number
	sequences                 bool    // it has sequences in the place of storms
	between                   int     // and so many of them between two rests
	compactions               bool    // the archive is that of HBase, with parts
	classes                   bool    // there are classes of types
	moves                     bool    // and types move between them
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
	case 0: // what is archived at once is lost with a cache that comes back older
		t.loses, t.shaky, t.older, t.long = true, true, true, 50
		t.hold, t.retain, t.watch, t.down = 600*time.Millisecond, 2*time.Second, 10*time.Second, 300*time.Millisecond
	case 1: // services remember what the cache has forgotten
		t.hold, t.retain, t.keep, t.nights, t.anew, t.astray, t.weak, t.loses = 20*time.Second, 2*time.Second, 100, 1, 4, 9000, "warm", false
	case 2: // births of users with hardly any history come late
		t.hold, t.keep, t.anew, t.weak, t.narrow, t.loses = 600*time.Millisecond, 1, 1, "apply", 2, false
	case 3: // many devices of one user play one object
		t.users, t.narrow, t.loses, t.shaky = 1, 1, true, true
	case 4: // cell times run ahead of the times of reports
		t.moods, t.grain, t.narrow, t.loses, t.long = [2]mood{beginning, uploading}, 1000, 2, false, 1
	case 5: // births come late, and recording is switched off
		t.moods, t.weak, t.fault, t.session, t.astray, t.narrow, t.loses = [2]mood{deciding, reading}, "apply", landsLater, 1, 9000, 2, false
	}
	if t.sequences, t.between = d.one(2), 1+d.n(4); t.sequences {
		t.watch, t.loses = time.Second, !d.one(4)
		t.grain = [...]int64{1, 1, 40, 1000}[d.n(4)]
		t.users, t.keep = 1, [...]int{1, 1, 2, 100}[d.n(4)]
		t.hold = [...]time.Duration{600 * time.Millisecond, 20 * time.Second}[d.n(2)]
	}
	t.compactions = d.one(4)
	if t.classes = d.one(3); t.classes {
		t.moves = d.one(2)
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
	embedded   *embedded   // is it, or nil
	compacting *compacting // in the place of it, or nil
	queue      *queue
	oracle     *oracle

	services []*service
	jobs     []*jobProcess
	edges    []*edge
	clients  []*client
	uids     []string
	born     int

	followers map[string]*follower

	rules   *history.Rulebook // of processes that start
	classes int               // which of the sets of classes there are
	moved   bool              // types have been in other classes before

	cacheClock clock
	epochs     atomic.Int64 // of the cache
	lived      time.Time    // when the last one began

	mu        sync.Mutex // guards what goroutines tell
	arrived   []*exchange
	abandoned []*exchange
	atTurns   []*turn
	left      []*member
	completed []*call
	wake      chan struct{} // of capacity 1: somebody was abandoned while time passes

	archived map[history.Key]bool // keys of which something is archived that was stored in this epoch of the cache
	cold     map[string]bool      // users of whom the cache may not know everything, as far as anybody can tell
	snapshot *Cache               // what the cache may go back to
	pending  []*exchange
	ghosts   []*ghost
	calls    int
	steps    int
	turns    int                  // steps of storms, and times at which nothing could be done
	rough    int                  // how often exchanges go wrong, of ten thousand
	landing  int                  // how often one lands that was given up, of ten thousand
	calm     bool                 // nothing goes wrong any more
	calmed   time.Time            // since when
	judged   time.Time            // when the last rest ended
	moods    [2]mood              // what clients do again and again
	narrow   int                  // how many objects they have
	shaky    bool                 // the cache is lost again and again
	weak     string               // what goes wrong more often than other exchanges, empty for none
	away     [stores]atomic.Int64 // until when a store does not answer, in Unix nanoseconds
	parts    [stores]awayPart     // which user of a store is away longer
	through  int                  // the service that calls go to, or anyService
	delayed  map[string]bool      // kinds of exchanges that wait, where no client's call is made for them
	course   course               // what becomes of the write of the last call

	failure string

	revisions map[uint64]int // that a trace has shown, and their numbers
}

// anyService is where calls go that go to no certain one.
const anyService = -1

// begin has the cache begin another epoch.
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

// faultsOf are of one kind of exchange.
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

// call is a request to a service on its way.
type call struct {
	number int
	answer any
	err    error
	done   func(any, error)
}

// mood is what clients do again and again in a storm. One has two, one, or none.
type mood int

const (
	deciding  mood = iota // they clear their histories, and switch recording
	deleting              // each object at its own time
	reading               // they turn pages, and look where they stopped
	uploading             // what is old
	beginning             // they clear what they have reported, and go on in its last millisecond but one
	moods
)

// fault is what goes wrong with an exchange. Those without a name are as frequent together.
type fault int

// course is what becomes of the write of a client's call.
type course int

const (
	goesWell   course = iota
	isSlow            // its caller waits for it
	isLost            // the caller gets no answer, and the write lands later
	isRepeated        // it is done, and lands once more later
	losesAnswer
	answersSlowly // it is done, and its caller waits for the answer
	courses
)

// The stores, of which each may be away for a while.
const (
	cacheStore = iota
	archiveStore
	queueStore
	stores
)

var storeNames = [stores]string{"cache", "archive", "queue"}

// awayPart is what is away of a store that answers for the others: a region, or a slot.
type awayPart struct {
	uid   string
	until time.Time
}

// process is one of the parts that live and die for themselves.
type process struct {
	w      *World
	number int
	name   string
	clock  clock
	ctx    context.Context
	cancel context.CancelFunc
	dead   atomic.Bool
	reread atomic.Int64 // the epoch of the cache in which a job has read the queue again
	down   time.Time    // when it died
}

// service is a history-service.
type service struct {
	*process
	rpc  *rpc.Server
	held *aggregate.Aggregator
}

// jobProcess is a history-job.
type jobProcess struct {
	*process
	compactions compactedDoor // where there is compacting
	absent      bool          // it is dead until the cache comes back older
}

// exchange is one call of a process, in parts that are atomic by themselves: the keys.
type exchange struct {
	proc  *process
	what  string
	about string // more of it than the keys say
	keys  []history.Key
	// run makes the effect of a part and notes its answer, fail notes that there is
	// none, and late makes the effect alone; nil for what only reads.
	run  func(part int)
	fail func(part int, err error)
	late func(part int)
	// ready reports whether there is anything to answer yet; nil for always.
	ready func() bool

	by   callers   // where it is for no client
	call int       // the client's call that it is made for, 0 for none
	left []int     // the parts without an answer
	idle time.Time // until when nobody looks at it
	over bool      // its caller has gone on, or may
	done chan struct{}
}

// ghost is an exchange whose caller has gone on, and that lands later.
type ghost struct {
	x     *exchange
	parts []int
	since time.Time
}

// partitions is how many the queue has: users of one job are those of some.
const partitions = 4

// queue is the log between services and jobs: messages by partition, and a group of
// jobs that share the partitions for a generation.
type queue struct {
	w              *World
	messages       [partitions][]message
	committed      [partitions]int
	commitMetadata [partitions]string // of the last commits
	generation     int
	members        []*member
	joining        []*member // guarded by w.mu
}

// message is what one publish sent to a partition.
type message struct {
	at   time.Time
	keys []history.Announcement
}

// member is a job in the group.
type member struct {
	proc        *process
	assignments chan *assignment // of capacity 1
	assignment  *assignment
}

// assignment is what a member owns in a generation.
type assignment struct {
	queue  *queue
	proc   *process
	number int // of the generation
	owned  []int
	next   [partitions]int
	ctx    context.Context
	end    context.CancelFunc
}

// client is a device of a user: it reports, keeps what was not answered, and reads.
type client struct {
	w       *World
	number  int
	uid     string
	device  string
	offset  time.Duration // of its clock
	busy    int           // calls on their way
	offline bool
	after   time.Time // when it tries again what was not answered
	outbox  []*historyv1.Heartbeat
	done    []*historyv1.Heartbeat // the last ones that were answered: a device that was restarted may send them again
	refused []func()               // reads of the judge that were not answered
	backup  []*historyv1.ImportedRecord

	sessions int
	session  string // of what it plays, empty for none
	object   history.Object
	started  int64
	position int
	watched  int64
	etags    map[history.Object]uint64 // as it was told last
	named    map[uint64]int64          // by etags that it was shown, the times of the records
	last     int64                     // the time of its last report
}

// edge takes what clients send, and sends it on in batches.
type edge struct {
	waiting []*submission
}

// submission is a message of a client on its way.
type submission struct {
	client     *client
	heartbeats []*historyv1.Heartbeat
	ack        historyv1.Ack
	received   int64 // by an edge that knows the time of the history, 0 for one that does not
}

func (w *World) isAway(store int) bool { return time.Now().UnixNano() < w.away[store].Load() }

const (
	landsLater fault = 7
	landsTwice fault = 8
	slow       fault = 11
	faults     fault = 12
)
