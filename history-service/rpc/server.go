// Package rpc is the service's gRPC API. It decodes and validates requests, calls the packages write, read and
// notify, and converts errors to statuses.
package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/admin"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/firstday"
	"github.com/playhead/playhead/history-service/hot"
	"github.com/playhead/playhead/history-service/notify"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/stores"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/history-service/write"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/trace"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Limits of the service.
const (
	// MaxMessage is the maximum request size, in bytes: twice the edge's limit, since the edge adds fields.
	MaxMessage = 2 << 20
	// maxStreams limits the concurrent requests per connection.
	maxStreams = 4096
	// streamWindow and connWindow are the flow-control windows, in bytes: one full batch per stream. Smaller
	// windows cost a frame exchange every few heartbeats, and bandwidth probes.
	streamWindow, connWindow = 1 << 20, 4 << 20
)

// Config configures a server. Zero values take the defaults; Cache, Archive, Aggregate and Queue are required.
type Config struct {
	Cache     history.Cache
	Archive   history.Archive
	Summaries read.Summaries // nil if summaries are off
	// Counters has the totals of objects of the types in Counted, and Counts takes what deleted records say; nil if
	// nothing is counted.
	Counters  count.Counters
	Counts    count.Publisher
	Counted   count.Types
	Aggregate *aggregate.Aggregator
	// Queue receives the records that are acknowledged as queued.
	Queue history.Publisher
	// Erasers are the stores that an erasure clears, in this order.
	Erasers []admin.Eraser
	// Feed exchanges changes with other services; required for Watch.
	Feed history.Feed
	// Days stores the days on which each user was seen; Announcer announces first sightings. Both are required for
	// first-of-day detection.
	Days      firstday.Days
	Announcer firstday.Announcer
	// Authorize refuses a call by an error with a gRPC status; health checks are not asked (default: all calls are
	// allowed).
	Authorize func(ctx context.Context) error
	// Edge is served too: the door of an edge in this process, which logs its users' removals itself. The calls of other
	// edges are logged here: a stolen edge certificate cannot hide a removal. Nil is none.
	Edge net.Listener
	// Webhook notifies a backend of started, completed and removed objects. Nil disables it.
	Webhook *webhook.Sender
	// Epoch returns the epochs of the cache servers, see [write.Writer.Confirm]. Nil means that the cache never
	// loses data.
	Epoch func(context.Context) (string, error)
	// Epochs lists the epochs of a file cache without Epoch, one per start, the current one last. [Server.Changes]
	// refuses a token of another epoch: restored files may lack changes that the client has seen.
	Epochs []string
	// Deadline limits a request without an earlier deadline (default 5 s).
	Deadline time.Duration
	// Keep is the number of records per user that a warm-up caches (default 1,000). Warmers is the number of
	// concurrent warm-ups (default 8), WarmRate the limit of warm-ups a second (default 1,000).
	Keep, Warmers, WarmRate int
	// Rules are the rules per object type (default: the standard rules).
	Rules *history.Rulebook
	// Now is the clock (default time.Now). ClockErr returns an error while the clock is unreliable, and nothing is
	// stored then. Nil means always reliable.
	Now      func() time.Time
	ClockErr func() error
	// Horizon is the trusted time for expiry, never later than Now (default Now). It is 1970 while unknown.
	Horizon func() time.Time
	// Tracer traces sampled requests; nil traces none.
	Tracer   *trace.Tracer
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Server implements historyv1.HistoryServiceServer and the operators' services, historyv1.ErasureServiceServer and
// historyv1.RebaseServiceServer.
type Server struct {
	historyv1.UnimplementedHistoryServiceServer
	historyv1.UnimplementedErasureServiceServer
	historyv1.UnimplementedRebaseServiceServer

	cfg    Config
	nodes  *stores.Nodes // nil for a single-node cache
	write  *write.Writer
	admin  *admin.Admin
	read   *read.Reader
	notify *notify.Notifier
	days   *firstday.Tracker
	hot    hot.Sampler

	seconds *prometheus.HistogramVec // of calls, by method
	batches prometheus.Observer      // of batches of a stream
}

// Hot returns which users and buckets report most.
func (s *Server) Hot() any { return s.hot.Top() }

// New validates the configuration and builds the server. [Server.Run] runs its background work.
func New(cfg Config) (*Server, error) {
	if cfg.Cache == nil || cfg.Archive == nil || cfg.Aggregate == nil || cfg.Queue == nil {
		return nil, errors.New("rpc: cache, archive, aggregate and queue are needed")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	log, reg := cfg.Logger, cfg.Registry
	s := &Server{cfg: cfg, seconds: promauto.With(reg).NewHistogramVec(trace.Latency(
		"playhead_rpc_request_seconds", "Time to answer a gRPC call, or a batch of a stream, by method.",
	), []string{"method"})}
	s.batches = s.seconds.WithLabelValues("ApplyStream")
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
		Cache: cache, Archive: archive, Summaries: cfg.Summaries, Counters: cfg.Counters, Counted: cfg.Counted, NodeOf: s.nodes.Of, Epoch: cfg.Epoch, Epochs: cfg.Epochs, Deadline: cfg.Deadline,
		Keep: cfg.Keep, Warmers: cfg.Warmers, WarmRate: cfg.WarmRate, Rules: cfg.Rules, Now: cfg.Now, Horizon: cfg.Horizon, Logger: log, Registry: reg,
	})
	s.notify = notify.New(notify.Config{Feed: cfg.Feed, Cache: cache, NodeOf: s.nodes.Of, Rules: cfg.Rules, Deadline: cfg.Deadline, Logger: log, Registry: reg})
	s.write = write.New(write.Config{
		Cache: cache, Archive: archive, Aggregate: cfg.Aggregate, Queue: cfg.Queue,
		Reader: s.read, Notify: s.notify, Days: s.days, Counts: cfg.Counts, Counted: cfg.Counted, Webhook: cfg.Webhook, Epoch: cfg.Epoch, Deadline: cfg.Deadline,
		Rules: cfg.Rules, Now: cfg.Now, ClockErr: cfg.ClockErr, Horizon: cfg.Horizon, Logger: log, Registry: reg,
	})
	s.admin = admin.New(admin.Config{Cache: cache, Archive: archive, Writer: s.write, Rules: cfg.Rules, Erasers: cfg.Erasers})
	return s, nil
}

// Run warms up cold users, announces changes and first sightings, and delivers webhooks until ctx is done. Stop it
// after [Server.Serve], to announce the last change.
func (s *Server) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return s.read.Run(ctx) })
	g.Go(func() error { return s.notify.Run(ctx) })
	g.Go(func() error { return s.days.Run(ctx) })
	g.Go(func() error { return s.cfg.Webhook.Run(ctx) })
	return g.Wait()
}

// Confirm restores lost writes after a restart of the cache, see [write.Writer.Confirm].
func (s *Server) Confirm(ctx context.Context) error { return s.write.Confirm(ctx) }

// Reclaim restores held records that the cache has lost, see [write.Writer.Reclaim].
func (s *Server) Reclaim(ctx context.Context) error { return s.write.Reclaim(ctx) }

// Delete writes a tombstone for each object.
func (s *Server) Delete(ctx context.Context, req *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	return answered(s.write.Delete(ctx, req))
}

// Clear removes the records of one type, or all, at or before a time.
func (s *Server) Clear(ctx context.Context, req *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	return answered(s.write.Clear(ctx, req))
}

// Erase removes a user from all stores.
func (s *Server) Erase(ctx context.Context, req *historyv1.EraseRequest) (*historyv1.EraseResponse, error) {
	return answered(s.admin.Erase(ctx, req))
}

// Rebase moves records written by a clock that was ahead to the present.
func (s *Server) Rebase(ctx context.Context, req *historyv1.RebaseRequest) (*historyv1.RebaseResponse, error) {
	return answered(s.admin.Rebase(ctx, req))
}

// Dismiss hides objects from "continue watching", or shows them again.
func (s *Server) Dismiss(ctx context.Context, req *historyv1.DismissRequest) (*historyv1.DismissResponse, error) {
	return answered(s.write.Dismiss(ctx, req))
}

// Mark marks objects as watched or unwatched, or resets them to the start.
func (s *Server) Mark(ctx context.Context, req *historyv1.MarkRequest) (*historyv1.MarkResponse, error) {
	return answered(s.write.Mark(ctx, req))
}

// PutSettings turns recording off or on.
func (s *Server) PutSettings(ctx context.Context, req *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error) {
	return answered(s.write.PutSettings(ctx, req))
}

// GetSettings returns a user's settings.
func (s *Server) GetSettings(ctx context.Context, req *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	return answered(s.read.GetSettings(ctx, req))
}

// List returns a page of a history, newest first.
func (s *Server) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	return answered(s.read.List(ctx, req))
}

// Points returns the playback positions of objects.
func (s *Server) Points(ctx context.Context, req *historyv1.PointsRequest) (*historyv1.PointsResponse, error) {
	return answered(s.read.Points(ctx, req))
}

// Continue returns started, unfinished objects.
func (s *Server) Continue(ctx context.Context, req *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error) {
	return answered(s.read.Continue(ctx, req))
}

// Search returns records by id and metadata.
func (s *Server) Search(ctx context.Context, req *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	return answered(s.read.Search(ctx, req))
}

// Changes returns the changes since a token.
func (s *Server) Changes(ctx context.Context, req *historyv1.ChangesRequest) (*historyv1.ChangesResponse, error) {
	return answered(s.read.Changes(ctx, req))
}

// Viewings returns the sessions of one object.
func (s *Server) Viewings(ctx context.Context, req *historyv1.ViewingsRequest) (*historyv1.ViewingsResponse, error) {
	return answered(s.read.Viewings(ctx, req))
}

// Stats adds up what a user watched.
func (s *Server) Stats(ctx context.Context, req *historyv1.StatsRequest) (*historyv1.StatsResponse, error) {
	return answered(s.read.Stats(ctx, req))
}

// Counts returns totals of objects.
func (s *Server) Counts(ctx context.Context, req *historyv1.CountsRequest) (*historyv1.CountsResponse, error) {
	return answered(s.read.Counts(ctx, req))
}

// Watch streams the changes of the watched users.
func (s *Server) Watch(stream grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse]) error {
	return status(s.notify.Watch(stream))
}

// Import merges whole records into a user's history. The protocol describes the response.
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

// reportOf converts an imported record to a report. A record past its TTL gets its final status.
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
	if r.At <= s.cfg.Rules.Expired(r.Key.Object.Type, now) {
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

// table maps errors to gRPC codes. Any other error is internal, and its text is not returned.
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

// answered converts a result's error to a status.
func answered[T any](resp T, err error) (T, error) { return resp, status(err) }

// status converts an error to a gRPC status with code and text. An invalid field is added as google.rpc.BadRequest,
// a known retry delay as google.rpc.RetryInfo. A gRPC status stays as it is.
func status(err error) error {
	if _, ok := grpcstatus.FromError(err); ok { // true for nil
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

// detailed adds a detail to a status. If that fails, the text still has the information.
func detailed(st *grpcstatus.Status, detail protoadapt.MessageV1) *grpcstatus.Status {
	with, err := st.WithDetails(detail)
	if err != nil {
		return st
	}
	return with
}
