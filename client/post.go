package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const byPost = 2 * time.Minute // of requests, before a WebSocket is tried again

// poster sends messages as requests, in the JSON that the edge takes there.
type poster struct {
	*Client
	token string
	heard int
}

// errEnough means that it is time to try a WebSocket again.
var errEnough = errors.New("sent requests for a while")

// overPost sends what waits as requests, for some time, because a WebSocket did not get
// through for the given reason. No changes are told meanwhile.
func (c *Client) overPost(ctx context.Context, token string, why error) (heard int, err error) {
	life, cancel := context.WithTimeoutCause(ctx, byPost, errEnough)
	defer cancel()
	p := &poster{Client: c, token: token}
	if r, ok := errors.AsType[*refusal](why); ok {
		if err := p.probe(life); err != nil {
			return noSign, joinRefusals(r, err)
		}
	}
	c.cfg.Logger.Info("no WebSocket", "err", why)
	c.cfg.Logger.Info("connected, by requests")
	err = c.send(life, p)
	c.closed(err)
	return p.heard, err
}

// probe asks whether requests get through, and what time it is.
func (p *poster) probe(life context.Context) error {
	_, sent := p.cfg.Clock()
	resp, err := p.exchange(life, &historyv1.StreamRequest{})
	p.learnTime(resp.GetResult().GetNowMs(), sent)
	if e := resp.GetError(); e != nil {
		p.failed(e)
		err = fmt.Errorf("post: %v: %s", e.Code, e.Detail)
	}
	return err
}

// joinRefusals joins the refusals of a WebSocket and of a request.
func joinRefusals(r *refusal, err error) error {
	if again, ok := errors.AsType[*refusal](err); ok && r.final() && again.final() {
		return fmt.Errorf("%w: %w", ErrRefused, r)
	}
	return err
}

func (p *poster) exchange(life context.Context, req *historyv1.StreamRequest) (*historyv1.StreamResponse, error) {
	body, err := json.Marshal(p.upload(req))
	if err != nil {
		return nil, fmt.Errorf("post: %w", err)
	}
	ctx, cancel := p.patient(life, len(req.Heartbeats), len(body)+len(p.token)+headers)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.URL+"/v1/heartbeats", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("post: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := p.cfg.HTTP.Do(r)
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("post: %w", err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20)) // an answer is smaller
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("post: %w", err))
	}
	return p.response(resp, text)
}

// response turns what HTTP says into what the stream would.
func (p *poster) response(resp *http.Response, text []byte) (*historyv1.StreamResponse, error) {
	codes := map[int]historyv1.StreamErrorCode{
		http.StatusRequestEntityTooLarge: historyv1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE,
		http.StatusUnprocessableEntity:   historyv1.StreamErrorCode_STREAM_ERROR_CODE_INVALID,
		http.StatusTooManyRequests:       historyv1.StreamErrorCode_STREAM_ERROR_CODE_RATE_LIMITED,
		http.StatusInternalServerError:   historyv1.StreamErrorCode_STREAM_ERROR_CODE_INTERNAL,
		http.StatusServiceUnavailable:    historyv1.StreamErrorCode_STREAM_ERROR_CODE_UNAVAILABLE,
		http.StatusGatewayTimeout:        historyv1.StreamErrorCode_STREAM_ERROR_CODE_TIMEOUT,
	}
	if resp.StatusCode == http.StatusOK {
		var reply reply
		if err := json.Unmarshal(text, &reply); err != nil {
			return nil, fmt.Errorf("post: %w", err)
		}
		p.heard = dataSign
		return &historyv1.StreamResponse{Result: reply.result()}, nil
	}
	var problem struct{ Detail string }
	_ = json.Unmarshal(text, &problem) // a proxy's has none
	refusal := newRefusal(resp, fmt.Errorf("post: %s: %s", resp.Status, problem.Detail))
	code, known := codes[resp.StatusCode]
	if !known {
		return nil, refusal
	}
	return &historyv1.StreamResponse{Error: &historyv1.StreamError{
		Code: code, Detail: problem.Detail, RetryAfterMs: refusal.after.Milliseconds(),
	}}, nil
}

// upload is the body of POST /v1/heartbeats.
type upload struct {
	SentAt     string       `json:"sent_at,omitzero"`
	FirstFlag  string       `json:"first_flag,omitzero"`
	TimeZone   string       `json:"time_zone"`
	Records    bool         `json:"records"`
	Heartbeats []jsonReport `json:"heartbeats"`
}

type jsonReport struct {
	Object    named             `json:"object"`
	Kind      string            `json:"kind"`
	Position  int64             `json:"position_ms"`
	Duration  int64             `json:"duration_ms,omitzero"`
	EventTime string            `json:"event_time"`
	Session   string            `json:"session,omitzero"`
	Device    string            `json:"device,omitzero"`
	StartedAt string            `json:"started_at,omitzero"`
	Watched   int64             `json:"watched_ms,omitzero"`
	Speed     float64           `json:"speed,omitzero"`
	IfMatch   string            `json:"if_match,omitzero"`
	Failed    bool              `json:"failed,omitzero"`
	Incognito bool              `json:"incognito,omitzero"`
	Meta      map[string]string `json:"meta,omitempty"`
}

type named struct {
	ID   string `json:"id"`
	Type uint32 `json:"type"`
}

// upload always says the zone: without one the edge would take the day for that of UTC.
func (p *poster) upload(req *historyv1.StreamRequest) upload {
	u := upload{TimeZone: p.zone(time.Now()), Records: req.ReturnRecords, Heartbeats: []jsonReport{}}
	if req.SentAtMs != 0 {
		u.SentAt = rfc3339(req.SentAtMs)
	}
	if known := req.GetDay().GetKnown(); known != 0 {
		u.FirstFlag = fmt.Sprintf("%04d-%02d-%02d", known/10_000, known/100%100, known%100)
	}
	for _, h := range req.Heartbeats {
		r := jsonReport{
			Object: named{h.ObjectId, h.ObjectType}, Kind: strings.ToLower(strings.TrimPrefix(h.Kind.String(), "KIND_")),
			Position: h.PositionMs, Duration: h.DurationMs, EventTime: rfc3339(h.EventTimeMs), Session: h.Session, Device: h.Device,
			Watched: h.WatchedMs, Speed: float64(h.SpeedPercent) / 100, Failed: h.Failed, Incognito: h.Incognito, Meta: h.Meta,
		}
		if h.StartedAtMs != 0 {
			r.StartedAt = rfc3339(h.StartedAtMs)
		}
		if h.IfMatch != 0 {
			r.IfMatch = strconv.FormatUint(h.IfMatch, 16)
		}
		u.Heartbeats = append(u.Heartbeats, r)
	}
	return u
}

func rfc3339(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// reply is the answer to an upload.
type reply struct {
	Results    []result
	FirstFlag  string `json:"first_flag"`
	FirstOfDay bool   `json:"first_of_day"`
	NowMS      int64  `json:"now_ms"`
}

type result struct {
	Status string
	Record *jsonRecord
	Error  *struct{ Field, Reason string }
}

type jsonRecord struct {
	Object      named
	Position    int64 `json:"position_ms"`
	Resume      int64 `json:"resume_ms"`
	Duration    int64 `json:"duration_ms"`
	Completed   bool
	Furthest    int64 `json:"furthest_ms"`
	Plays       uint64
	State       string
	EventTime   time.Time  `json:"event_time"`
	CompletedAt *time.Time `json:"completed_at"`
	PlayedAt    *time.Time `json:"played_at"`
	DismissedAt *time.Time `json:"dismissed_at"`
	Session     string
	Device      string
	Meta        map[string]string
	Watched     int64 `json:"watched_ms"`
	Incomplete  bool
	ETag        string
}

func (r *reply) result() *historyv1.ApplyResponse {
	resp := &historyv1.ApplyResponse{NowMs: r.NowMS}
	for i, one := range r.Results {
		status := historyv1.Status_value["STATUS_"+strings.ToUpper(one.Status)]
		resp.Statuses = append(resp.Statuses, historyv1.Status(status))
		resp.Records = append(resp.Records, one.Record.item())
		if one.Error != nil {
			resp.Refusals = append(resp.Refusals, &historyv1.Refusal{
				Index: uint32(i), Field: one.Error.Field, Reason: one.Error.Reason, //nolint:gosec // at most maxBatch
			})
		}
	}
	if date, err := time.Parse(time.DateOnly, r.FirstFlag); err == nil {
		day := date.Year()*10_000 + int(date.Month())*100 + date.Day()
		resp.Days = []*historyv1.DaySeen{{Date: uint32(day), First: r.FirstOfDay}} //nolint:gosec // eight digits
	}
	return resp
}

// item returns the record as the stream has it; without an object where there is none.
func (r *jsonRecord) item() *historyv1.Item {
	if r == nil {
		return &historyv1.Item{}
	}
	etag, _ := strconv.ParseUint(r.ETag, 16, 64) // the edge wrote it
	it := &historyv1.Item{
		Object:      &historyv1.Object{Id: r.Object.ID, Type: r.Object.Type},
		State:       historyv1.State(historyv1.State_value["STATE_"+strings.ToUpper(r.State)]),
		EventTimeMs: r.EventTime.UnixMilli(), PositionMs: r.Position, DurationMs: r.Duration, FurthestMs: r.Furthest,
		Plays: r.Plays, Session: r.Session, Device: r.Device, Meta: r.Meta, Etag: etag, WatchedMs: r.Watched, Incomplete: r.Incomplete,
		ResumeMs: r.Resume, Completed: r.Completed,
	}
	if r.CompletedAt != nil {
		it.CompletedAtMs = r.CompletedAt.UnixMilli()
	}
	if r.PlayedAt != nil {
		it.PlayedMs = r.PlayedAt.UnixMilli()
	}
	if r.DismissedAt != nil {
		it.DismissedMs = r.DismissedAt.UnixMilli()
	}
	return it
}
