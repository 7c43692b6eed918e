package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// sessionTimes are the fields of a session that are text in JSON, by their names there.
var sessionTimes = map[string]string{"begin": "begin_ms", "end": "end_ms", "completed_at": "completed_at_ms"}

// Viewings reads the newest 128 sessions of an object, newest first; none where there is no record.
// It needs no Run, asks once, and takes as long as ctx lets it and Patience. It fails with
// [ErrUnauthorized] where the edge refuses the token.
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

// read asks the edge for something, for as long as ctx lets it and Patience, and reports whether it is there.
func (c *Client) read(ctx context.Context, path string, into any) (found bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Patience, errSlow)
	defer cancel()
	token, err := c.cfg.Token(ctx)
	if err != nil {
		return false, fmt.Errorf("token: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.URL+path, http.NoBody)
	if err != nil {
		return false, fmt.Errorf("get: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.cfg.HTTP.Do(r)
	if err != nil {
		return false, fmt.Errorf("get: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20)) // an answer is smaller
	switch {
	case err != nil:
		return false, fmt.Errorf("get: %w", err)
	case resp.StatusCode == http.StatusNotFound:
		return false, nil
	case resp.StatusCode != http.StatusOK:
		return false, newRefusal(resp, fmt.Errorf("get: %s: %s", resp.Status, detail(text)))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("get: %w", err)
	}
	return true, nil
}
