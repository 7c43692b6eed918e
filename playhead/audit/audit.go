// Package audit proves in production that a history keeps its promises. Synthetic users report, delete, clear and watch
// again through the front door. A small model knows what was acknowledged, and every place that has a copy is compared
// with it.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Prefix begins the uids of all synthetic users.
const Prefix = "playhead-audit-"

// Door is how players and apps change a history and read it.
type Door interface {
	// Report reports an event. After an error the report may be stored or not, or be stored later.
	Report(ctx context.Context, e *history.Event) (stored bool, err error)
	// Delete removes a record, and Clear all of them until a time in Unix milliseconds. An error is as of Report.
	Delete(ctx context.Context, uid string, o history.Object) error
	Clear(ctx context.Context, uid string, until int64) error
	// List returns all records of a user.
	List(ctx context.Context, uid string) (map[history.Object]Seen, error)
}

// Place has a copy of the histories.
type Place struct {
	Name string
	// Within is how late it may be.
	Within time.Duration
	// Read returns a user's records. known is false if the place cannot tell, such as the cache of a user that it has
	// dropped.
	Read func(ctx context.Context, uid string) (all map[history.Object]Seen, known bool, err error)
}

// Seen is a record in a place.
type Seen struct {
	Position int64
	Plays    uint64
	// Partial means that the place does not know all plays.
	Partial bool
}

// Config configures an [Auditor]. Door is required; zero values of the others take the defaults.
type Config struct {
	Door Door
	// Places are compared besides Door.
	Places []Place
	// Name tells the users of audits of one history apart (default "1").
	Name string
	// Users is the number of synthetic users (default 10), Type the type of their objects (default 1).
	Users int
	Type  uint32
	// Every is the time between two operations (default 1 s).
	Every time.Duration
	// For ends the audit after that time, and after the wait for late places; 0 never does.
	For time.Duration
	// Again is the wait before a difference is looked at once more (default 1 s). Of two servers one may be a moment
	// behind.
	Again    time.Duration
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Auditor runs an audit.
type Auditor struct {
	cfg        Config
	users      []*user
	longest    time.Duration // Within of all places
	findings   *prometheus.CounterVec
	operations *prometheus.CounterVec
	checks     *prometheus.CounterVec

	found   map[string]int // by kind
	stored  int
	refusal error // latest operation that was not stored
}

// objects is the number of objects of a user: small, so that they are watched again.
const objects = 12

// New returns an auditor. Its objects are of its own: operations of an earlier one that come late do not touch them.
func New(cfg Config) *Auditor {
	cfg.Name, cfg.Type = cmp.Or(cfg.Name, "1"), cmp.Or(cfg.Type, 1)
	cfg.Users, cfg.Every, cfg.Again = run.Default(cfg.Users, 10), run.Default(cfg.Every, time.Second), run.Default(cfg.Again, time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	front := Place{Name: "door", Read: func(ctx context.Context, uid string) (map[history.Object]Seen, bool, error) {
		all, err := cfg.Door.List(ctx, uid)
		return all, true, err
	}}
	cfg.Places = append([]Place{front}, cfg.Places...)
	metrics := promauto.With(cfg.Registry)
	a := &Auditor{
		cfg: cfg, found: make(map[string]int),
		findings: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_audit_findings_total", Help: "Broken promises that the audit found: reports lost, deletes resurrected, records archived late.",
		}, []string{"kind"}),
		operations: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_audit_operations_total", Help: "Operations of the audit's users, by answer.",
		}, []string{"answer"}),
		checks: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_audit_checks_total", Help: "Comparisons of a user's records with the audit's model, by place.",
		}, []string{"place"}),
	}
	for _, kind := range []string{lost, resurrected, late} {
		a.findings.WithLabelValues(kind)
	}
	for _, answer := range []string{"stored", "refused", "none"} {
		a.operations.WithLabelValues(answer)
	}
	for _, p := range cfg.Places {
		a.checks.WithLabelValues(p.Name)
		a.longest = max(a.longest, p.Within)
	}
	session := strconv.FormatInt(time.Now().UnixMilli(), 36)
	for n := range cfg.Users {
		a.users = append(a.users, newUser(Prefix+cfg.Name+"-"+strconv.Itoa(n), session, cfg.Type, len(cfg.Places)))
	}
	return a
}

// Kinds of findings.
const (
	lost        = "lost"        // an acknowledged report is not there
	resurrected = "resurrected" // a removed record is there
	late        = "late"        // not in a place within its time
)

// Run audits until ctx is done or [Config.For] has passed, and returns an error if it found anything.
func (a *Auditor) Run(ctx context.Context) error {
	end := time.Now().Add(a.cfg.For)
	for n := 0; a.cfg.For == 0 || time.Now().Before(end); n++ {
		u := a.users[n%len(a.users)]
		a.operate(ctx, u)
		a.check(ctx, u)
		if !run.Sleep(ctx, a.cfg.Every) {
			return a.verdict()
		}
	}
	if a.await(ctx) && len(a.found) == 0 {
		for _, u := range a.users { // what is found stays, to be looked at
			if err := a.cfg.Door.Clear(ctx, u.uid, u.next()); err != nil {
				a.cfg.Logger.Warn("records of the audit stay", "uid", u.uid, "error", err)
			}
		}
	}
	return a.verdict()
}

// await checks until every place is right, or has had its time.
func (a *Auditor) await(ctx context.Context) (right bool) {
	for end := time.Now().Add(a.longest + a.cfg.Again); ; {
		right = true
		for _, u := range a.users {
			a.check(ctx, u)
			right = right && u.settled()
		}
		if right || time.Now().After(end) || !run.Sleep(ctx, a.cfg.Every) {
			return right
		}
	}
}

func (a *Auditor) verdict() error {
	switch {
	case len(a.found) > 0:
		return fmt.Errorf("broken promises: %d lost, %d resurrected, %d late; see the log", a.found[lost], a.found[resurrected], a.found[late])
	case a.stored == 0:
		return fmt.Errorf("nothing was stored, so nothing is proved: %w", cmp.Or(a.refusal, errors.New("no operation was answered")))
	}
	return nil
}

// operate does the next operation of a user, or the one without an answer again.
func (a *Auditor) operate(ctx context.Context, u *user) {
	if u.pending == nil {
		u.propose()
	}
	stored, err := a.send(ctx, u.pending)
	switch {
	case err != nil:
		a.operations.WithLabelValues("none").Inc()
		a.cfg.Logger.Debug("no answer", "uid", u.uid, "error", err)
		a.refusal = err
	case !stored:
		a.operations.WithLabelValues("refused").Inc()
		a.cfg.Logger.Debug("report refused", "key", u.pending.event.Key)
		a.refusal = fmt.Errorf("the report of %s was refused", u.pending.event.Key)
		u.refused()
	default:
		a.operations.WithLabelValues("stored").Inc()
		a.stored++
		u.acknowledged()
	}
}

func (a *Auditor) send(ctx context.Context, op *operation) (stored bool, err error) {
	uid := op.event.Key.UID
	switch op.kind {
	case deletes:
		return true, a.cfg.Door.Delete(ctx, uid, op.event.Key.Object)
	case clears:
		return true, a.cfg.Door.Clear(ctx, uid, op.event.At)
	}
	return a.cfg.Door.Report(ctx, &op.event)
}

// check compares all places with the model of a user.
func (a *Auditor) check(ctx context.Context, u *user) {
	for i, p := range a.cfg.Places {
		if len(a.compare(ctx, u, i)) == 0 {
			continue
		}
		if !run.Sleep(ctx, a.cfg.Again) {
			return
		}
		for _, d := range a.compare(ctx, u, i) {
			d.object.told[i] = true
			a.found[d.kind]++
			a.findings.WithLabelValues(d.kind).Inc()
			a.cfg.Logger.Error("promise broken", "kind", d.kind, "key", history.Key{UID: u.uid, Object: d.object.Object}.String(), "place", p.Name,
				"want", d.object.String(), "got", describe(d.got), "changed", d.object.changed)
		}
	}
	u.forget(time.Now().Add(-2 * (a.longest + a.cfg.Again)))
}

// compare returns the differences of a place, none if it does not answer.
func (a *Auditor) compare(ctx context.Context, u *user, place int) []difference {
	p := a.cfg.Places[place]
	asked := time.Now()
	all, known, err := p.Read(ctx, u.uid)
	if err != nil || !known {
		if err != nil {
			a.cfg.Logger.Debug("place not readable", "place", p.Name, "uid", u.uid, "error", err)
		}
		return nil
	}
	a.checks.WithLabelValues(p.Name).Inc()
	return u.differences(place, all, asked.Add(-p.Within))
}

// between returns a random number from low, and below high.
func between(low, high int64) int64 { return low + rand.Int64N(high-low) } //nolint:gosec // no secret
