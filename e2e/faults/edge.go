package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
)

// edgeDoor is the HTTP door of the edge. All events of a request are one user's.
type edgeDoor struct {
	addr   string
	secret []byte
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

func (d edgeDoor) apply(ctx context.Context, events []*event) ([]bool, error) {
	body := upload{SentAt: time.Now()}
	for _, e := range events {
		body.Heartbeats = append(body.Heartbeats, uploadHeartbeat{
			Object: uploadObject(e.Key.Object), Kind: kindName(e.Kind), PositionMS: e.Position, DurationMS: e.Duration,
			EventTime: time.UnixMilli(e.At), Session: e.Session, Device: e.Device,
			StartedAt: beginning(e), WatchedMS: e.Watched, Meta: e.Meta,
		})
	}
	var answer struct {
		Results []struct {
			Status string `json:"status"`
		} `json:"results"`
	}
	if err := d.post(ctx, events[0].Key.UID, body, &answer); err != nil {
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

func (d edgeDoor) post(ctx context.Context, uid string, body, answer any) error {
	bearer, err := token.Mint(d.secret, uid, time.Hour)
	if err != nil {
		return err
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.addr+"/v1/heartbeats", bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
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

// beginning returns when the session of an event began, nil where nobody says.
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
