package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const patience = 4 * time.Second

// errRefused means that the product refused a valid request.
var errRefused = errors.New("refused")

// target is one way into the product: a service's gRPC client or the edge's HTTP.
type target interface {
	// apply sends heartbeats and returns whether each was acknowledged.
	apply(ctx context.Context, events []*event) ([]bool, error)
}

type rpcClient struct {
	historyv1.HistoryServiceClient

	ack historyv1.Ack
}

func (d rpcClient) apply(ctx context.Context, events []*event) ([]bool, error) {
	resp, err := d.Apply(ctx, &historyv1.ApplyRequest{Heartbeats: heartbeats(events), Ack: d.ack})
	if err != nil {
		return nil, err
	}
	acked := make([]bool, len(events))
	for i, s := range resp.GetStatuses() {
		switch s {
		case historyv1.Status_STATUS_UNAVAILABLE:
		case historyv1.Status_STATUS_INVALID, historyv1.Status_STATUS_EXPIRED:
			return nil, fmt.Errorf("%w: %s is %v", errRefused, events[i], s)
		default:
			acked[i] = true
		}
	}
	return acked, nil
}

func heartbeats(events []*event) []*historyv1.Heartbeat {
	hbs := make([]*historyv1.Heartbeat, len(events))
	for i, e := range events {
		hbs[i] = &historyv1.Heartbeat{
			Uid: e.Key.UID, ObjectId: e.Key.Object.ID, ObjectType: e.Key.Object.Type,
			Kind: historyv1.Kind(e.Kind), EventTimeMs: e.At, PositionMs: e.Position, DurationMs: e.Duration,
			Session: e.Session, Device: e.Device, Meta: e.Meta.Map(), StartedAtMs: e.StartedAt, WatchedMs: e.Watched,
		}
	}
	return hbs
}

// send sends events through a target and returns the unacknowledged ones.
func (b *book) send(ctx context.Context, d target, events []*event) (again []*event, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	acked, err := d.apply(ctx, events)
	if err != nil {
		return events, err
	}
	var done []*event
	for i, e := range events {
		if acked[i] {
			done = append(done, e)
		} else {
			again = append(again, e)
		}
	}
	b.ack(done...)
	return again, nil
}

// remove deletes objects of one user. An unacknowledged delete may have happened.
func (b *book) remove(ctx context.Context, d rpcClient, keys []history.Key, at int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := &historyv1.DeleteRequest{Uid: keys[0].UID, AtMs: at}
	events := make([]*event, len(keys))
	for i, k := range keys {
		req.Objects = append(req.Objects, &historyv1.Object{Id: k.Object.ID, Type: k.Object.Type})
		events[i] = b.note(history.Event{Key: k, Kind: history.KindDelete, At: at})
	}
	if _, err := d.Delete(ctx, req); err != nil {
		return err
	}
	b.ack(events...)
	return nil
}

// clear removes everything of one type, or all (0), at or before a time.
func (b *book) clear(ctx context.Context, d rpcClient, uid string, typ uint32, until int64) error { //nolint:revive // what the request has, and a target
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := b.noteClear(uid, typ, until)
	if _, err := d.Clear(ctx, &historyv1.ClearRequest{Uid: uid, Type: typ, UntilMs: until}); err != nil {
		return err
	}
	b.ackClear(c)
	return nil
}

// edgeClient is the HTTP client of the edge. All events of a request are one user's.
type edgeClient struct {
	addr   string
	secret []byte
	client *http.Client // nil for the default
}

type upload struct {
	SentAt     time.Time         `json:"sent_at"`
	Heartbeats []uploadHeartbeat `json:"heartbeats"`
}

type uploadHeartbeat struct {
	Object     uploadObject `json:"object"`
	Kind       string       `json:"kind"`
	PositionMS int64        `json:"position_ms"`
	DurationMS int64        `json:"duration_ms"`
	EventTime  time.Time    `json:"event_time"`
	Session    string       `json:"session"`
	Device     string       `json:"device"`

	StartedAt *time.Time        `json:"started_at,omitempty"`
	WatchedMS int64             `json:"watched_ms,omitempty"`
	Meta      map[string]string `json:"meta,omitempty"`
}

type uploadObject struct {
	ID   string `json:"id"`
	Type uint32 `json:"type"`
}

func (d edgeClient) apply(ctx context.Context, events []*event) ([]bool, error) {
	body := upload{SentAt: time.Now()}
	for _, e := range events {
		body.Heartbeats = append(body.Heartbeats, uploadHeartbeat{
			Object: uploadObject(e.Key.Object), Kind: kindName(e.Kind), PositionMS: e.Position, DurationMS: e.Duration,
			EventTime: time.UnixMilli(e.At), Session: e.Session, Device: e.Device,
			StartedAt: beginning(e), WatchedMS: e.Watched, Meta: e.Meta.Map(),
		})
	}
	var answer struct {
		Results []struct {
			Status string `json:"status"`
		} `json:"results"`
	}
	if err := d.post(ctx, call{"/v1/heartbeats", token.Claims{UID: events[0].Key.UID}, body}, &answer); err != nil {
		return nil, err
	}
	acked := make([]bool, len(events))
	for i, r := range answer.Results {
		switch r.Status {
		case "stored", "unchanged", "stale", "cleared":
			acked[i] = true
		case "unavailable", "unknown":
		default:
			return nil, fmt.Errorf("%w: %s is %s", errRefused, events[i], r.Status)
		}
	}
	return acked, nil
}

// call is a request to the edge.
type call struct {
	path string
	as   token.Claims
	body any
}

func (d edgeClient) post(ctx context.Context, c call, answer any) error {
	c.as.TTL = time.Hour
	bearer, err := c.as.Sign(d.secret)
	if err != nil {
		return err
	}
	b, err := json.Marshal(c.body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.addr+c.path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	resp, err := cmp.Or(d.client, http.DefaultClient).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("status %d", resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: status %d", errRefused, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// beginning returns the start of an event's session, or nil if unknown.
func beginning(e *event) *time.Time {
	if e.StartedAt == 0 {
		return nil
	}
	at := time.UnixMilli(e.StartedAt)
	return &at
}

func kindName(k history.Kind) string {
	return [...]string{"", "start", "progress", "pause", "seek", "stop", "finish"}[k]
}

// dial connects to a service with short reconnect delays, because it may restart at any moment.
func dial(addr string) (*grpc.ClientConn, error) {
	retry := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond},
		MinConnectTimeout: time.Second,
	}
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(retry))
}
