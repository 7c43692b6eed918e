package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Changes reads all changes and removals since the token of the last response. After a resync, as without a
// token, read everything, then the changes since the token of that response. Changes requests its own access
// token and needs no Run.
func (c *Client) Changes(ctx context.Context, since string) (*historyv1.ChangesResponse, error) {
	var items []*historyv1.Item // latest version of each object; a removed one has no etag
	at := make(map[[2]any]int)
	tell := func(it *historyv1.Item) {
		k := [2]any{it.GetObject().GetType(), it.GetObject().GetId()}
		if i, known := at[k]; known {
			items[i] = it
			return
		}
		at[k], items = len(items), append(items, it)
	}
	for {
		var page changesPage
		path := "/v1/changes"
		if since != "" {
			path += "?since=" + url.QueryEscape(since)
		}
		found, err := c.read(ctx, path, &page)
		if err == nil && !found {
			err = errors.New("the edge cannot tell them")
		}
		if err != nil {
			return nil, fmt.Errorf("changes: %w", err)
		}
		resp := &historyv1.ChangesResponse{Resync: page.Resync, Token: page.Token, Settings: page.settings()}
		for _, r := range page.Items {
			it, err := itemOf(r)
			if err != nil {
				return nil, fmt.Errorf("changes: %w", err)
			}
			tell(it)
		}
		for _, o := range page.Removed {
			tell(&historyv1.Item{Object: o})
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
	Removed  []*historyv1.Object `json:"removed"`
	Resync   bool                `json:"resync"`
	Token    string              `json:"token"`
	HasMore  bool                `json:"has_more"`
	Settings struct {
		Recording bool      `json:"recording"`
		PausedAt  time.Time `json:"paused_at"`
	} `json:"settings"`
}

func (p *changesPage) settings() *historyv1.Settings {
	s := &historyv1.Settings{Recording: p.Settings.Recording}
	if at := p.Settings.PausedAt; !at.IsZero() {
		s.PausedMs = at.UnixMilli()
	}
	return s
}

// sessionTimes maps JSON names of a session's text times to field names.
var sessionTimes = map[string]string{"begin": "begin_ms", "end": "end_ms", "completed_at": "completed_at_ms"}

// Viewings reads the newest 128 sessions of an object, newest first; none without a record. It needs no Run,
// tries once and waits for Patience at most. It fails with [ErrUnauthorized] if the edge refuses the token.
func (c *Client) Viewings(ctx context.Context, object *historyv1.Object) ([]*historyv1.Session, error) {
	var page struct{ Items []map[string]any }
	path := fmt.Sprintf("/v1/history/%d/%s/viewings", object.GetType(), url.PathEscape(object.GetId()))
	if found, err := c.read(ctx, path, &page); err != nil || !found {
		return nil, err
	}
	sessions := make([]*historyv1.Session, len(page.Items))
	for i, one := range page.Items {
		sessions[i] = &historyv1.Session{}
		if err := fill(sessions[i], one, sessionTimes); err != nil {
			return nil, fmt.Errorf("viewings: %w", err)
		}
	}
	return sessions, nil
}

// Marking is a user's statement about objects, made without playing them.
type Marking struct {
	Objects []*historyv1.MarkedObject // a season, or one object; at most 1,000
	Mark    historyv1.Mark
	// At is the time of the statement (default now).
	At time.Time
	// OnlyRecorded skips objects without a record; UnlessCompleted skips completed ones.
	OnlyRecorded, UnlessCompleted bool
}

// Mark marks objects. It returns their statuses and current records in order; a missing record is empty. It
// needs no Run, tries once and waits for Patience at most. After an error the marks may be stored.
func (c *Client) Mark(ctx context.Context, m Marking) (*historyv1.MarkResponse, error) {
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
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("mark: %w", err)
	}
	var page reply
	found, err := c.ask(ctx, "POST /v1/history/mark", text, &page)
	if err == nil && (!found || len(page.Results) != len(objects)) {
		err = errors.New("the edge does not answer for each object")
	}
	if err != nil {
		return nil, fmt.Errorf("mark: %w", err)
	}
	resp, err := page.result()
	if err != nil {
		return nil, fmt.Errorf("mark: %w", err)
	}
	return &historyv1.MarkResponse{Statuses: resp.GetStatuses(), Records: resp.GetRecords()}, nil
}

// read gets a resource within Patience and reports whether it exists.
func (c *Client) read(ctx context.Context, path string, into any) (found bool, err error) {
	return c.ask(ctx, "GET "+path, nil, into)
}

// ask is read with a body of JSON and any method, which precedes the path.
func (c *Client) ask(ctx context.Context, what string, body []byte, into any) (found bool, err error) {
	method, path, _ := strings.Cut(what, " ")
	what = strings.ToLower(method)
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Patience, errSlow)
	defer cancel()
	token, err := c.cfg.Token(ctx)
	if err != nil {
		return false, fmt.Errorf("token: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.cfg.URL+path, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.cfg.HTTP.Do(r)
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20)) // more than any response
	switch {
	case err != nil:
		return false, fmt.Errorf("%s: %w", what, err)
	case resp.StatusCode == http.StatusNotFound:
		return false, nil
	case resp.StatusCode != http.StatusOK:
		return false, newRefusal(resp, fmt.Errorf("%s: %s: %s", what, resp.Status, detail(text)))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	return true, nil
}
