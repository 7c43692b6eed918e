// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// Changes reads all changes and removals since the token of the last response. After a resync, as without a
// token, read everything, then the changes since the token of that response. Changes requests its own access
// token and needs no Run.
func (c *Client) Changes(ctx context.Context, since string) (*messagev1.ChangesResponse, error) {
	var items []*messagev1.Item // latest version of each object; a removed one has no etag
	at := make(map[[2]any]int)
	tell := func(it *messagev1.Item) {
		k := [2]any{it.GetObject().GetType(), it.GetObject().GetId()}
		if i, known := at[k]; known {
			items[i] = it
			return
		}
		at[k], items = len(items), append(items, it)
	}
	for {
		var page changesPage
		if err := c.call(ctx, get("/v1/changes", "since", since), &page); err != nil {
			return nil, fmt.Errorf("changes: %w", err)
		}
		resp := &messagev1.ChangesResponse{Resync: page.Resync, Token: page.Token, Settings: page.settings()}
		for _, r := range page.Items {
			it, err := itemOf(r)
			if err != nil {
				return nil, fmt.Errorf("changes: %w", err)
			}
			tell(it)
		}
		for _, o := range page.Removed {
			tell(&messagev1.Item{Object: o})
		}
		if since = page.Token; page.HasMore && !page.Resync {
			continue
		}
		for _, it := range items {
			switch {
			case page.Resync:
			case it.GetEtag() == 0:
				resp.Removed = append(resp.Removed, it.GetObject())
			default:
				resp.Items = append(resp.Items, it)
			}
		}
		return resp, nil
	}
}

type changesPage struct {
	Items    []map[string]any    `json:"items"`
	Removed  []*messagev1.Object `json:"removed"`
	Resync   bool                `json:"resync"`
	Token    string              `json:"token"`
	HasMore  bool                `json:"has_more"`
	Settings struct {
		Recording bool      `json:"recording"`
		PausedAt  time.Time `json:"paused_at"`
	} `json:"settings"`
}

func (p *changesPage) settings() *messagev1.Settings {
	s := &messagev1.Settings{Recording: p.Settings.Recording}
	if at := p.Settings.PausedAt; !at.IsZero() {
		s.PausedMs = at.UnixMilli()
	}
	return s
}

// sessionTimes maps JSON names of a session's text times to field names.
var sessionTimes = map[string]string{"begin": "begin_ms", "end": "end_ms", "completed_at": "completed_at_ms"}

// Viewings reads the newest 128 sessions of an object, newest first; none without a record. It needs no Run,
// tries once and waits for Patience at most.
func (c *Client) Viewings(ctx context.Context, object *messagev1.Object) ([]*messagev1.Session, error) {
	var page struct{ Items []map[string]any }
	if err := c.call(ctx, get(pathOf(object)+"/viewings"), &page); err != nil {
		return nil, noRecordIsNone("viewings", err)
	}
	sessions := make([]*messagev1.Session, len(page.Items))
	for i, one := range page.Items {
		sessions[i] = &messagev1.Session{}
		if err := fill(sessions[i], one, sessionTimes); err != nil {
			return nil, fmt.Errorf("viewings: %w", err)
		}
	}
	return sessions, nil
}

// Marking is a user's statement about objects, made without playing them.
type Marking struct {
	Objects []*messagev1.MarkedObject // a season, or one object; at most 1,000
	Mark    messagev1.Mark
	// At is the time of the statement (default now).
	At time.Time
	// OnlyRecorded skips objects without a record; UnlessCompleted skips completed ones.
	OnlyRecorded, UnlessCompleted bool
}

// Mark marks objects. It returns their statuses and current records in order; a missing record is empty. It
// needs no Run, tries once and waits for Patience at most. After an error the marks may be stored.
func (c *Client) Mark(ctx context.Context, m Marking) (*messagev1.MarkResponse, error) {
	body := map[string]any{"mark": strings.ToLower(strings.TrimPrefix(m.Mark.String(), "MARK_"))}
	objects := make([]map[string]any, len(m.Objects))
	for i, o := range m.Objects {
		objects[i] = map[string]any{"id": o.GetObject().GetId(), "type": o.GetObject().GetType()}
		if meta := o.GetMeta(); len(meta) > 0 {
			objects[i]["meta"] = meta
		}
	}
	if body["objects"] = objects; !m.At.IsZero() {
		body["event_time"] = rfc3339(m.At.UnixMilli())
	}
	for name, set := range map[string]bool{"only_recorded": m.OnlyRecorded, "unless_completed": m.UnlessCompleted} {
		if set {
			body[name] = true
		}
	}
	var page reply
	err := c.call(ctx, post("/v1/history/mark", body), &page)
	if err == nil && len(page.Results) != len(objects) {
		err = errors.New("the edge does not answer for each object")
	}
	if err != nil {
		return nil, fmt.Errorf("mark: %w", err)
	}
	resp, err := page.result()
	if err != nil {
		return nil, fmt.Errorf("mark: %w", err)
	}
	return &messagev1.MarkResponse{Statuses: resp.GetStatuses(), Records: resp.GetRecords()}, nil
}
