package backfill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Service is a target that reports the events of viewings to history-service, with their times, and imports records.
type Service struct {
	Conn grpc.ClientConnInterface
	// Period is the time between two heartbeats of a viewing, 0 for its start and its last report only.
	Period time.Duration
	// Patience bounds the wait for an answer, and retries without progress (default 60 s).
	Patience time.Duration

	idle chan *stream
}

// NewService returns a target for that many concurrent calls.
func NewService(conn grpc.ClientConnInterface, calls int) *Service {
	return &Service{Conn: conn, idle: make(chan *stream, calls)}
}

// maxBeats bounds the reports of a request.
const maxBeats = 500

// Fold implements [Target].
func (s *Service) Fold(ctx context.Context, items []Item) ([]Result, error) {
	f := &reports{results: make([]Result, len(items))}
	if err := s.fold(ctx, items, f.results); err != nil {
		return nil, err
	}
	for i := range items {
		if items[i].Event == nil {
			continue
		}
		for e := range Beats(items[i].Event, s.Period.Milliseconds()) {
			if len(f.beats) == maxBeats {
				if err := s.send(ctx, f); err != nil {
					return nil, err
				}
			}
			f.add(i, e)
		}
	}
	return f.results, s.send(ctx, f)
}

// reports are the heartbeats of items on their way, and the items' results so far.
type reports struct {
	results []Result
	beats   []*historyv1.Heartbeat
	of      []int // item of each heartbeat
}

func (f *reports) add(item int, e *history.Event) {
	f.beats, f.of = append(f.beats, heartbeat(e)), append(f.of, item)
}

func heartbeat(e *history.Event) *historyv1.Heartbeat {
	return &historyv1.Heartbeat{
		Uid: e.Key.UID, ObjectId: e.Key.Object.ID, ObjectType: e.Key.Object.Type, Kind: historyv1.Kind(e.Kind), EventTimeMs: e.At,
		PositionMs: e.Position, DurationMs: e.Duration, Session: e.Session, Device: e.Device, Meta: e.Meta.Map(),
		StartedAtMs: e.StartedAt, WatchedMs: e.Watched, SpeedPercent: uint32(e.Speed), //nolint:gosec // at most history.MaxSpeed
	}
}

// send sends the heartbeats until all are answered.
func (s *Service) send(ctx context.Context, f *reports) error {
	patience := run.Default(s.Patience, patience)
	backoff := run.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second}
	for trouble := time.Now(); len(f.beats) > 0; {
		before := len(f.beats)
		err := s.try(ctx, f, patience)
		if err == nil {
			continue
		}
		if len(f.beats) < before {
			trouble = time.Now()
			backoff.Reset()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if final(err) || time.Since(trouble) > patience || !backoff.Sleep(ctx) {
			return fmt.Errorf("report to the service: %w", err)
		}
	}
	return nil
}

func final(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	return errors.Is(err, errMismatch)
}

var (
	errAgain    = errors.New("a store of the service does not answer")
	errMismatch = errors.New("the answer of the service does not belong to the batch")
)

// stream is one stream of batches, used by one call at a time.
type stream struct {
	grpc.BidiStreamingClient[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]
	sequence uint64
	end      context.CancelFunc
}

// take returns an idle stream, or a new one.
func (s *Service) take() (*stream, error) {
	select {
	case one := <-s.idle:
		return one, nil
	default:
	}
	ctx, end := context.WithCancel(context.Background())
	rpc, err := historyv1.NewHistoryServiceClient(s.Conn).ApplyStream(ctx, grpc.ForceCodecV2(wire.RequestCodec()))
	if err != nil {
		end()
		return nil, err
	}
	return &stream{BidiStreamingClient: rpc, end: end}, nil
}

// give returns a stream for other calls, or ends it.
func (s *Service) give(one *stream) {
	select {
	case s.idle <- one:
	default:
		one.end()
	}
}

// Close ends the idle streams.
func (s *Service) Close() {
	for {
		select {
		case one := <-s.idle:
			one.end()
		default:
			return
		}
	}
}

// try sends the heartbeats once, and drops those that are answered.
func (s *Service) try(ctx context.Context, f *reports, patience time.Duration) error {
	one, err := s.take()
	if err != nil {
		return err
	}
	late := time.AfterFunc(patience, one.end)
	stop := context.AfterFunc(ctx, one.end)
	resp, err := one.exchange(f.beats)
	if whole := late.Stop() && stop(); !whole || err != nil {
		one.end()
		s.Close() // the others are likely of the same connection
		if err == nil {
			err = errAgain
		}
		return err
	}
	s.give(one)
	return f.answered(resp)
}

func (s *stream) exchange(beats []*historyv1.Heartbeat) (*historyv1.ApplyResponse, error) {
	s.sequence++
	_ = s.Send(&historyv1.ApplyStreamRequest{Sequence: s.sequence, Batch: &historyv1.ApplyRequest{Heartbeats: beats}}) // Recv has the reason
	resp, err := s.Recv()
	if err == nil && resp.GetSequence() != s.sequence {
		err = fmt.Errorf("%w: sequence %d, want %d", errMismatch, resp.GetSequence(), s.sequence)
	}
	return resp.GetResult(), err
}

// answered notes the results, and keeps the heartbeats that are to be sent again.
func (f *reports) answered(resp *historyv1.ApplyResponse) error {
	if got := len(resp.GetStatuses()); got != len(f.beats) {
		return fmt.Errorf("%w: %d statuses for %d heartbeats", errMismatch, got, len(f.beats))
	}
	reasons := make(map[int]string)
	for _, r := range resp.GetRefusals() {
		reasons[int(r.GetIndex())] = r.GetField() + ": " + r.GetReason()
	}
	removed := make(map[int]bool)
	for _, s := range resp.GetStale() {
		removed[int(s.GetIndex())] = s.GetEventTimeMs() <= s.GetRemovedMs()
	}
	beats, of := f.beats, f.of
	f.beats, f.of = f.beats[:0:0], f.of[:0:0]
	for i, st := range resp.GetStatuses() {
		if st == historyv1.Status_STATUS_UNAVAILABLE {
			f.beats, f.of = append(f.beats, beats[i]), append(f.of, of[i])
			continue
		}
		outcome, known := statusOutcomes[st]
		if !known {
			return fmt.Errorf("%w: status %v", errMismatch, st)
		}
		if outcome == Older && removed[i] {
			outcome = Deleted
		}
		r := &f.results[of[i]]
		*r = worse(*r, Result{outcome, reasons[i]})
	}
	if len(f.beats) > 0 {
		return errAgain
	}
	return nil
}

// statusOutcomes are the outcomes of the service's answers.
var statusOutcomes = map[historyv1.Status]Outcome{
	historyv1.Status_STATUS_STORED: New, historyv1.Status_STATUS_UNCHANGED: Equal, historyv1.Status_STATUS_STALE: Older,
	historyv1.Status_STATUS_EXPIRED: Expired, historyv1.Status_STATUS_CLEARED: Deleted, historyv1.Status_STATUS_PAUSED: Paused,
	historyv1.Status_STATUS_BRIEF: Brief, historyv1.Status_STATUS_INVALID: Rejected,
}

// worse unites the results of two reports of one viewing: it is new if either is, and otherwise what the later one is.
func worse(a, b Result) Result {
	switch {
	case a.Outcome == Rejected, b.Outcome == Rejected:
		if a.Outcome == Rejected {
			return a
		}
		return b
	case a.Outcome == New:
		return a
	}
	return b
}

// maxRecords bounds the records of a request.
const maxRecords = 200

// fold sends records and users' states to the service. Clear marks go first: nothing up to them may come back.
func (s *Service) fold(ctx context.Context, items []Item, results []Result) error {
	byUser := make(map[string][]int)
	for i := range items {
		if items[i].Event != nil {
			continue
		}
		uid, _ := history.UserOf(items[i].Key.UID) // the service knows the class
		byUser[uid] = append(byUser[uid], i)
	}
	for uid, of := range byUser {
		u := &userRecords{service: s, uid: uid, items: items, results: results}
		if err := u.send(ctx, of); err != nil {
			return fmt.Errorf("import records of %q: %w", uid, err)
		}
	}
	return nil
}

// userRecords are the items of one user.
type userRecords struct {
	service *Service
	uid     string
	items   []Item
	results []Result
}

func (u *userRecords) send(ctx context.Context, of []int) error {
	var records []int
	for _, i := range of {
		var err error
		switch it := &u.items[i]; {
		case it.User != nil:
			err = u.service.again(ctx, func(ctx context.Context) error { return u.state(ctx, it.User) })
			u.results[i].Outcome = New
		case it.Record.Deleted():
			err = u.service.again(ctx, func(ctx context.Context) error { return u.remove(ctx, it) })
			u.results[i].Outcome = New
		default:
			records = append(records, i)
		}
		if err != nil {
			return err
		}
	}
	for len(records) > 0 {
		some := records[:min(len(records), maxRecords)]
		if err := u.service.again(ctx, func(ctx context.Context) error { return u.records(ctx, some) }); err != nil {
			return err
		}
		records = records[len(some):]
	}
	return nil
}

// again calls do until it succeeds, or was in vain for the patience.
func (s *Service) again(ctx context.Context, do func(context.Context) error) error {
	limit := run.Default(s.Patience, patience)
	backoff := run.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second}
	for began := time.Now(); ; {
		call, cancel := context.WithTimeout(ctx, limit)
		err := do(call)
		cancel()
		switch status.Code(err) {
		case codes.OK, codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
			return err
		}
		if ctx.Err() != nil || time.Since(began) > limit || !backoff.Sleep(ctx) {
			return err
		}
	}
}

// state sends clear marks and an active pause.
func (u *userRecords) state(ctx context.Context, state *history.User) error {
	client := historyv1.NewHistoryServiceClient(u.service.Conn)
	for typ, until := range state.Cleared {
		if _, err := client.Clear(ctx, &historyv1.ClearRequest{Uid: u.uid, Type: typ, UntilMs: until}); err != nil {
			return err
		}
	}
	if !state.Pause.On() {
		return nil
	}
	_, err := client.PutSettings(ctx, &historyv1.PutSettingsRequest{Uid: u.uid, Recording: false})
	return err
}

func (u *userRecords) remove(ctx context.Context, it *Item) error {
	o := it.Key.Object
	_, err := historyv1.NewHistoryServiceClient(u.service.Conn).Delete(ctx, &historyv1.DeleteRequest{
		Uid: u.uid, Objects: []*historyv1.Object{{Id: o.ID, Type: o.Type}}, AtMs: it.Record.Version.Time(),
	})
	return err
}

// records imports whole records.
func (u *userRecords) records(ctx context.Context, of []int) error {
	req := &historyv1.ImportRequest{Uid: u.uid}
	for _, i := range of {
		whole, err := view.Whole(u.items[i].Record)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		o := u.items[i].Key.Object
		req.Records = append(req.Records, &historyv1.ImportedRecord{Object: &historyv1.Object{Id: o.ID, Type: o.Type}, Record: whole})
	}
	resp, err := historyv1.NewHistoryServiceClient(u.service.Conn).Import(ctx, req)
	if err != nil {
		return err
	}
	if got := len(resp.GetStatuses()); got != len(of) {
		return fmt.Errorf("%w: %d statuses for %d records", errMismatch, got, len(of))
	}
	for n, st := range resp.GetStatuses() {
		if st == historyv1.Status_STATUS_UNAVAILABLE {
			return errAgain
		}
		outcome, known := statusOutcomes[st]
		if !known {
			return fmt.Errorf("%w: status %v", errMismatch, st)
		}
		u.results[of[n]].Outcome = outcome
	}
	for _, r := range resp.GetRefusals() {
		u.results[of[r.GetIndex()]].Reason = r.GetField() + ": " + r.GetReason()
	}
	return nil
}
