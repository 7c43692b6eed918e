// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

const byPost = 2 * time.Minute // duration of requests before the next WebSocket attempt

// poster sends messages as HTTP requests, in the edge's JSON.
type poster struct {
	*Client
	token string
	heard int
}

// errEnough means that a WebSocket attempt is due.
var errEnough = errors.New("sent requests for a while")

// overPost sends the queue as requests for a while, after a WebSocket failed with why. It receives no changes.
func (c *Client) overPost(ctx context.Context, token string, why error) (heard int, err error) {
	life, cancel := context.WithTimeoutCause(ctx, byPost, errEnough)
	defer cancel()
	p := &poster{Client: c, token: token}
	if r, ok := errors.AsType[*refusal](why); ok {
		if err := p.probe(life); errors.Is(why, errAway) && err != nil {
			return noSign, why
		} else if err != nil {
			return noSign, joinRefusals(r, err)
		}
	}
	c.cfg.Logger.Info("no WebSocket", "error", why)
	c.cfg.Logger.Info("connected, by requests")
	err = c.send(life, p)
	c.closed(err)
	return p.heard, err
}

// probe checks whether requests get through, and learns the time.
func (p *poster) probe(life context.Context) error {
	_, sent := p.cfg.Clock()
	resp, err := p.exchange(life, &messagev1.StreamRequest{})
	p.learnTime(resp.GetResult().GetNowMs(), sent)
	if e := resp.GetError(); e != nil {
		if e.RetryAfterMs > 0 {
			p.failed(e)
		}
		err = fmt.Errorf("post: %v: %s", e.Code, e.Detail)
	}
	return err
}

// joinRefusals combines the refusals of a WebSocket and of a request.
func joinRefusals(r *refusal, err error) error {
	again, ok := errors.AsType[*refusal](err)
	switch {
	case ok && r.final() && again.final() && again.byEdge:
		return fmt.Errorf("%w: %w", ErrRefused, r)
	case r.passing() && !ok:
		return r // may contain a retry time
	}
	return err
}

func (p *poster) exchange(life context.Context, req *messagev1.StreamRequest) (*messagev1.StreamResponse, error) {
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
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("post: %w: %w", errAway, err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20)) // more than any response
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("post: %w", err))
	}
	return p.response(resp, text, len(req.Heartbeats))
}

// response converts an HTTP response to a request of so many heartbeats into a stream's response.
func (p *poster) response(resp *http.Response, text []byte, beats int) (*messagev1.StreamResponse, error) {
	codes := map[int]messagev1.StreamErrorCode{
		http.StatusRequestEntityTooLarge: messagev1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE,
		http.StatusUnprocessableEntity:   messagev1.StreamErrorCode_STREAM_ERROR_CODE_INVALID,
		http.StatusTooManyRequests:       messagev1.StreamErrorCode_STREAM_ERROR_CODE_RATE_LIMITED,
		http.StatusInternalServerError:   messagev1.StreamErrorCode_STREAM_ERROR_CODE_INTERNAL,
		http.StatusServiceUnavailable:    messagev1.StreamErrorCode_STREAM_ERROR_CODE_UNAVAILABLE,
		http.StatusGatewayTimeout:        messagev1.StreamErrorCode_STREAM_ERROR_CODE_TIMEOUT,
	}
	if resp.StatusCode == http.StatusOK {
		var reply reply
		if err := json.Unmarshal(text, &reply); err != nil {
			return nil, fmt.Errorf("post: %w", err)
		}
		result, err := reply.result()
		if err != nil {
			return nil, fmt.Errorf("post: %w", err)
		}
		if got := len(result.Statuses); got != beats {
			return nil, fmt.Errorf("post: %d results for %d heartbeats", got, beats) // not from the edge
		}
		if p.heard = max(p.heard, anySign); beats > 0 {
			p.heard = dataSign // an empty request does not prove that reports get through
		}
		return &messagev1.StreamResponse{Result: result}, nil
	}
	why := detail(text)
	refusal := newRefusal(resp, fmt.Errorf("post: %s: %s", resp.Status, why))
	refusal.byEdge = why != ""
	code, known := codes[resp.StatusCode]
	if !known {
		return nil, refusal
	}
	if !refusal.byEdge {
		code = messagev1.StreamErrorCode_STREAM_ERROR_CODE_UNAVAILABLE // a proxy's refusal does not mean an invalid heartbeat
	}
	return &messagev1.StreamResponse{Error: &messagev1.StreamError{
		Code: code, Detail: why, RetryAfterMs: refusal.after.Milliseconds(),
	}}, nil
}

// detail returns the edge's error detail; a proxy's response has none.
func detail(text []byte) string {
	var problem struct{ Detail string }
	_ = json.Unmarshal(text, &problem)
	return problem.Detail
}

type upload struct {
	SentAt     string           `json:"sent_at,omitzero"`
	FirstFlag  string           `json:"first_flag,omitzero"`
	TimeZone   string           `json:"time_zone"`
	Records    bool             `json:"records"`
	Heartbeats []map[string]any `json:"heartbeats"`
}

// upload always sets the zone: the edge's default is UTC.
func (p *poster) upload(req *messagev1.StreamRequest) upload {
	u := upload{TimeZone: p.zone(time.Now()), Records: req.ReturnRecords, Heartbeats: []map[string]any{}}
	if req.SentAtMs != 0 {
		u.SentAt = rfc3339(req.SentAtMs)
	}
	if known := req.GetDay().GetKnown(); known != 0 {
		u.FirstFlag = fmt.Sprintf("%04d-%02d-%02d", known/10_000, known/100%100, known%100)
	}
	for _, h := range req.Heartbeats {
		u.Heartbeats = append(u.Heartbeats, reportOf(h))
	}
	return u
}

// unposted fields are set by the edge, or placed elsewhere in JSON.
var unposted = []string{"uid", "object_id", "object_type", "sent_at_ms", "received_at_ms", "origin", "day"}

// reportOf returns a heartbeat in the HTTP API's form. Most fields keep their names; times are text, without
// the unit in the name.
func reportOf(h *messagev1.Heartbeat) map[string]any {
	r := map[string]any{"object": map[string]any{"id": h.ObjectId, "type": h.ObjectType}, "position_ms": h.PositionMs, "event_time": rfc3339(h.EventTimeMs)}
	h.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case slices.Contains(unposted, name):
		case name == "kind":
			r[name] = strings.ToLower(strings.TrimPrefix(h.Kind.String(), "KIND_"))
		case name == "speed_percent":
			r["speed"] = float64(h.SpeedPercent) / 100
		case name == "if_match":
			r[name] = strconv.FormatUint(h.IfMatch, 16)
		case name == "meta" || name == "removed_meta":
			r["meta"] = metaOf(h)
		case name == "event_time_ms" || strings.HasSuffix(name, "_at_ms"):
			r[strings.TrimSuffix(name, "_ms")] = rfc3339(v.Int())
		default:
			r[name] = v.Interface()
		}
		return true
	})
	return r
}

// metaOf returns the metadata as JSON; a removed key is null.
func metaOf(h *messagev1.Heartbeat) map[string]*string {
	all := make(map[string]*string)
	for _, k := range h.RemovedMeta {
		all[k] = nil
	}
	for k, v := range h.Meta {
		all[k] = &v
	}
	return all
}

func rfc3339(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

type reply struct {
	Results    []result
	FirstFlag  string `json:"first_flag"`
	FirstOfDay bool   `json:"first_of_day"`
	NowMS      int64  `json:"now_ms"`
}

type result struct {
	Status string
	Record map[string]any
	Error  *struct{ Field, Reason string }
}

func (r *reply) result() (*messagev1.ApplyResponse, error) {
	resp := &messagev1.ApplyResponse{NowMs: r.NowMS}
	for i, one := range r.Results {
		status := messagev1.Status_value["STATUS_"+strings.ToUpper(one.Status)]
		resp.Statuses = append(resp.Statuses, messagev1.Status(status))
		it, err := itemOf(one.Record)
		if err != nil {
			return nil, err
		}
		resp.Records = append(resp.Records, it)
		if one.Error != nil {
			resp.Refusals = append(resp.Refusals, &messagev1.Refusal{
				Index: uint32(i), Field: one.Error.Field, Reason: one.Error.Reason, //nolint:gosec // at most maxBatch
			})
		}
	}
	if date, err := time.Parse(time.DateOnly, r.FirstFlag); err == nil {
		day := date.Year()*10_000 + int(date.Month())*100 + date.Day()
		resp.Days = []*messagev1.DaySeen{{Date: uint32(day), First: r.FirstOfDay}} //nolint:gosec // eight digits
	}
	return resp, nil
}

// times maps JSON names of an item's text times to field names.
var times = map[string]string{"event_time": "event_time_ms", "completed_at": "completed_at_ms", "played_at": "played_ms", "dismissed_at": "dismissed_ms"}

// itemOf converts a record of the HTTP API to a stream's; an absent one has no object.
func itemOf(record map[string]any) (*messagev1.Item, error) {
	it := &messagev1.Item{}
	if record == nil {
		return it, nil
	}
	if etag, ok := record["etag"].(string); ok {
		record["etag"], _ = strconv.ParseUint(etag, 16, 64) // written by the edge, so valid
	}
	return it, fill(it, record, times)
}

// fill sets a message's fields from a JSON object. times maps its text times to their fields.
func fill(m proto.Message, record map[string]any, times map[string]string) error {
	for name, field := range times {
		if text, ok := record[name].(string); ok {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return err
			}
			record[field] = at.UnixMilli()
		}
	}
	if state, ok := record["state"].(string); ok {
		record["state"] = "STATE_" + strings.ToUpper(state)
	}
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
}
