package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

const retentionKey = "playhead:retention"

// agree compares the copy of the archive's retention with the rules. A copy that is missing, or on a server that does
// not answer, says nothing: the archive itself decides.
func (c *Cache) agree(ctx context.Context) error {
	stored, found, err := c.Retention(ctx)
	if errors.Is(err, history.ErrUnavailable) || err == nil && !found {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := c.config.Rules.Agree(stored); err != nil {
		return c.config.Rules.Remedy(err, "--hbase HOST:PORT", "TABLE@HOST:PORT")
	}
	return nil
}

// Retention returns the server's copy of the archive's retention, if there is one.
func (c *Cache) Retention(ctx context.Context) (r history.Retention, found bool, err error) {
	text, err := c.client.Get(ctx, retentionKey).Bytes()
	if errors.Is(err, goredis.Nil) {
		return r, false, nil
	}
	if err != nil {
		return r, false, unavailable("load the retention", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, false, fmt.Errorf("load the retention %q: %w", text, err)
	}
	return r, true, nil
}

// AddRetention saves the copy unless there is one.
func (c *Cache) AddRetention(ctx context.Context, r history.Retention) error {
	return c.save(ctx, r, "NX")
}

// SaveRetention saves the copy. A running process that differs is no longer ready; see [Cache.Fit].
func (c *Cache) SaveRetention(ctx context.Context, r history.Retention) error {
	return c.save(ctx, r)
}

func (c *Cache) save(ctx context.Context, r history.Retention, options ...any) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = c.client.Do(ctx, append([]any{"set", retentionKey, text}, options...)...).Err()
	if errors.Is(err, goredis.Nil) { // there is one
		return nil
	}
	return unavailable("save the retention", err)
}
