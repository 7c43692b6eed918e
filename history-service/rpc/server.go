// Package rpc is the service as gRPC callers see it: it decodes and bounds what they ask,
// passes it to the packages that write, read and notify, and turns errors into statuses.
package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/firstday"
	"github.com/playhead/playhead/history-service/notify"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/stores"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/history-service/write"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Limits of the service.
const (
	// MaxMessage bounds a request, in bytes: twice what an edge takes, which adds its own.
	MaxMessage = 2 << 20
	// maxStreams bounds the requests under way on one connection.
	maxStreams = 4096
	// streamWindow and connWindow are how many bytes a caller may send before any are taken: a
	// batch in full. With smaller ones both ends exchange a frame for every few heartbeats, and
	// measure how large the windows should be.
	streamWindow, connWindow = 1 << 20, 4 << 20
)

// Config wires a server. Zero values take the defaults.
type Config struct {
	Cache     stores.Cache
	Archive   history.Archive
	Summaries history.Summarizer // nil where none are kept
	Aggregate *aggregate.Aggregator
	// Queue takes the records that are to be acknowledged as queued.
	Queue history.Publisher
	// Erasers are the stores that are gone through when a user is erased, in this order.
	Erasers []history.Eraser
	// Feed tells other services what this one has changed, and this one what they have;
	// without one nobody can watch.
	Feed history.Feed
	// Days remembers who was seen on which day, and Announcer tells of first sightings.
	// Without both no player is told whether it is the first of its user's day.
	Days      history.Days
	Announcer history.Announcer
	// Webhook tells a backend what was begun, completed and removed. Nil tells nobody.
	Webhook *webhook.Sender
	// Epoch names the epochs of the cache servers, see [write.Writer.Confirm]. Nil
	// is for a cache that never loses anything.
	Epoch func(context.Context) (string, error)
	// Epochs are for a cache in files, which has no Epoch: the names of all epochs of the files, one for each start, the
	// present epoch last. A token of [Server.Changes] from an epoch that is not listed may know contents that the files have
	// lost, as after a restore from an older copy.
	Epochs []string
	// Deadline bounds a request whose caller set no earlier one (default 5 s).
	Deadline time.Duration
	// Keep is how many records of a user a warm-up puts into the cache (default
	// 1,000), Warmers how many users are warmed at once (default 8), and WarmRate how
	// many in a second (default 1,000).
	Keep, Warmers, WarmRate int
	// Rules say what counts as what, by type of object (default the standard ones).
	Rules *history.Rulebook
	// Now is the clock (default time.Now). ClockErr returns an error while the clock is not
	// reliable: nothing is stored then. Nil means that it always is.
	Now      func() time.Time
	ClockErr func() error
	// Horizon is the trusted time, never later than Now (default Now), and 1970 while none is known: records expire by it.
	Horizon  func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Server implements historyv1.HistoryServiceServer, and the services of operators: historyv1.ErasureServiceServer and
// historyv1.RebaseServiceServer.
type Server struct {
	historyv1.UnimplementedHistoryServiceServer
	historyv1.UnimplementedErasureServiceServer
	historyv1.UnimplementedRebaseServiceServer

	cfg    Config
	nodes  *stores.Nodes // nil where the cache has one
	write  *write.Writer
	read   *read.Reader
	notify *notify.Notifier
	days   *firstday.Tracker
}

// New checks the configuration and puts the parts together. [Server.Run] does what happens
// in the background.
func New(cfg Config) (*Server, error) {
	if cfg.Cache == nil || cfg.Archive == nil || cfg.Aggregate == nil || cfg.Queue == nil {
		return nil, errors.New("rpc: cache, archive, aggregate and queue are needed")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	log, reg := cfg.Logger, cfg.Registry
	s := &Server{cfg: cfg}
	var err error
	s.days, err = firstday.New(firstday.Config{Days: cfg.Days, Announcer: cfg.Announcer, Now: cfg.Now, Logger: log, Registry: reg})
	if err != nil {
		return nil, err
	}
	cache, archive := cfg.Cache, stores.NewArchive(cfg.Archive, log, reg)
	if on, ok := cache.(stores.Sharded); ok {
		s.nodes = stores.NewNodes(cache, on, log, reg)
		cache = s.nodes
	}
	s.read = read.New(read.Config{
		Cache: cache, Archive: archive, Summaries: cfg.Summaries, NodeOf: s.nodes.Of, Epoch: cfg.Epoch, Epochs: cfg.Epochs, Deadline: cfg.Deadline,
		Keep: cfg.Keep, Warmers: cfg.Warmers, WarmRate: cfg.WarmRate, Rules: cfg.Rules, Now: cfg.Now, Horizon: cfg.Horizon, Logger: log, Registry: reg,
	})
	s.notify = notify.New(notify.Config{Feed: cfg.Feed, Cache: cache, NodeOf: s.nodes.Of, Rules: cfg.Rules, Deadline: cfg.Deadline, Logger: log, Registry: reg})
	s.write = write.New(write.Config{
		Cache: cache, Archive: archive, Aggregate: cfg.Aggregate, Queue: cfg.Queue, Erasers: cfg.Erasers,
		Reader: s.read, Notify: s.notify, Days: s.days, Webhook: cfg.Webhook, Epoch: cfg.Epoch, Deadline: cfg.Deadline,
		Rules: cfg.Rules, Now: cfg.Now, ClockErr: cfg.ClockErr, Horizon: cfg.Horizon, Logger: log, Registry: reg,
	})
	return s, nil
}

// Run warms cold users, announces changes and first sightings, and tells the webhook, until ctx is done. It
// ends after [Server.Serve], so that the last change is announced too.
func (s *Server) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return s.read.Run(ctx) })
	g.Go(func() error { return s.notify.Run(ctx) })
	g.Go(func() error { return s.days.Run(ctx) })
	g.Go(func() error { return s.cfg.Webhook.Run(ctx) })
	return g.Wait()
}

// Confirm has what was lost written again where the cache came back as another one, see
// [write.Writer.Confirm].
func (s *Server) Confirm(ctx context.Context) error { return s.write.Confirm(ctx) }

// Reclaim writes again what the cache has lost of what is held, see [write.Writer.Reclaim].
func (s *Server) Reclaim(ctx context.Context) error { return s.write.Reclaim(ctx) }

// Delete writes a tombstone for each object.
func (s *Server) Delete(ctx context.Context, req *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	return answered(s.write.Delete(ctx, req))
}

// Clear removes everything of one type, or of all, at or before a time.
func (s *Server) Clear(ctx context.Context, req *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	return answered(s.write.Clear(ctx, req))
}

// Erase removes everything that the stores have of a user.
func (s *Server) Erase(ctx context.Context, req *historyv1.EraseRequest) (*historyv1.EraseResponse, error) {
	return answered(s.write.Erase(ctx, req))
}

// Rebase brings records of a clock that was ahead to the present.
func (s *Server) Rebase(ctx context.Context, req *historyv1.RebaseRequest) (*historyv1.RebaseResponse, error) {
	return answered(s.write.Rebase(ctx, req))
}

// Dismiss takes objects out of what is offered to go on with, or offers them again.
func (s *Server) Dismiss(ctx context.Context, req *historyv1.DismissRequest) (*historyv1.DismissResponse, error) {
	return answered(s.write.Dismiss(ctx, req))
}

// Mark says of objects that they were watched or not, or puts them back to the start.
func (s *Server) Mark(ctx context.Context, req *historyv1.MarkRequest) (*historyv1.MarkResponse, error) {
	return answered(s.write.Mark(ctx, req))
}

// PutSettings switches recording off or on.
func (s *Server) PutSettings(ctx context.Context, req *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error) {
	return answered(s.write.PutSettings(ctx, req))
}

// GetSettings reads what a user has decided.
func (s *Server) GetSettings(ctx context.Context, req *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	return answered(s.read.GetSettings(ctx, req))
}

// List reads a page of a history, newest first.
func (s *Server) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	return answered(s.read.List(ctx, req))
}

// Points reads where a user stopped in some objects.
func (s *Server) Points(ctx context.Context, req *historyv1.PointsRequest) (*historyv1.PointsResponse, error) {
	return answered(s.read.Points(ctx, req))
}

// Continue reads what a user has begun and not finished.
func (s *Server) Continue(ctx context.Context, req *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error) {
	return answered(s.read.Continue(ctx, req))
}

// Search reads records by what their ids and metadata say.
func (s *Server) Search(ctx context.Context, req *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	return answered(s.read.Search(ctx, req))
}

// Changes reads what has changed since a token.
func (s *Server) Changes(ctx context.Context, req *historyv1.ChangesRequest) (*historyv1.ChangesResponse, error) {
	return answered(s.read.Changes(ctx, req))
}

// Viewings reads the sessions of one object.
func (s *Server) Viewings(ctx context.Context, req *historyv1.ViewingsRequest) (*historyv1.ViewingsResponse, error) {
	return answered(s.read.Viewings(ctx, req))
}

// Watch tells what changes in the histories of the users that the stream names.
func (s *Server) Watch(stream grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse]) error {
	return status(s.notify.Watch(stream))
}

// Import folds whole records into a user's history. See the protocol for what it answers.
func (s *Server) Import(ctx context.Context, req *historyv1.ImportRequest) (*historyv1.ImportResponse, error) {
	return answered(s.imported(ctx, req))
}

func (s *Server) imported(ctx context.Context, req *historyv1.ImportRequest) (*historyv1.ImportResponse, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return nil, err
	}
	if n := len(req.GetRecords()); n > write.MaxBatch {
		return nil, history.Invalid("records", fmt.Sprintf("%d in one call; want at most %d", n, write.MaxBatch))
	}
	resp := &historyv1.ImportResponse{Statuses: make([]historyv1.Status, len(req.GetRecords()))}
	reports := make([]report.Report, len(req.GetRecords()))
	now := s.cfg.Now().UnixMilli()
	for i, in := range req.GetRecords() {
		var err error
		if reports[i], err = s.reportOf(req, in, now); err != nil {
			reports[i].Status = historyv1.Status_STATUS_INVALID
			resp.Refusals = append(resp.Refusals, refusal(i, err))
		}
	}
	if err := s.write.Import(ctx, req.GetUid(), reports); err != nil {
		return nil, err
	}
	for i := range reports {
		resp.Statuses[i] = reports[i].Status
	}
	return resp, nil
}

// reportOf makes a report of an imported record. One that the archive would not keep has its
// status decided.
func (s *Server) reportOf(req *historyv1.ImportRequest, in *historyv1.ImportedRecord, now int64) (r report.Report, err error) {
	r.Key, r.Restore = history.Key{UID: req.GetUid(), Object: report.Object(in.GetObject())}, req.GetRestore()
	if err := r.Key.Object.Validate(); err != nil {
		return r, err
	}
	if r.Whole, err = view.Record(in.GetRecord()); err != nil {
		return r, history.Invalid("details", "want a record as exports have it")
	}
	if err := r.Whole.Validate(now); err != nil {
		return r, err
	}
	r.At = r.Whole.Version.Time()
	if r.At <= now-s.cfg.Rules.TTL(r.Key.Object.Type) {
		r.Status = historyv1.Status_STATUS_EXPIRED
	}
	return r, nil
}

func refusal(i int, err error) *historyv1.Refusal {
	r := &historyv1.Refusal{Index: uint32(i), Reason: err.Error()} //nolint:gosec // at most MaxBatch
	if field, ok := errors.AsType[*history.FieldError](err); ok {
		r.Field, r.Reason = field.Field, field.Reason
	}
	return r
}

// table maps errors to gRPC codes. Any other error is internal, and its text
// stays in the log.
var table = []struct {
	err  error
	code codes.Code
}{
	{history.ErrInvalid, codes.InvalidArgument},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
	{history.ErrConflict, codes.FailedPrecondition},
	{history.ErrUnavailable, codes.Unavailable},
	{history.ErrClosed, codes.Unavailable},
}

// answered returns an answer, or an error as gRPC carries it.
func answered[T any](resp T, err error) (T, error) { return resp, status(err) }

// status turns an error into one that gRPC carries: code, text, the field of
// an invalid request as google.rpc.BadRequest, and when to try again, where that is known,
// as google.rpc.RetryInfo. An error that gRPC carries already stays as it is.
func status(err error) error {
	if _, ok := grpcstatus.FromError(err); ok { // nil is one
		return err
	}
	for _, row := range table {
		if !errors.Is(err, row.err) {
			continue
		}
		st := grpcstatus.New(row.code, err.Error())
		if field, ok := errors.AsType[*history.FieldError](err); ok {
			st = detailed(st, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: field.Field, Description: field.Reason},
			}})
		}
		if retry, ok := errors.AsType[*stores.RetryError](err); ok {
			st = detailed(st, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry.After)})
		}
		return st.Err()
	}
	return grpcstatus.Error(codes.Internal, "internal error")
}

// detailed adds a detail to a status. Without it the bare status still says it in words.
func detailed(st *grpcstatus.Status, detail protoadapt.MessageV1) *grpcstatus.Status {
	with, err := st.WithDetails(detail)
	if err != nil {
		return st
	}
	return with
}
