package hbase

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
)

const (
	life         = history.ArchiveLife / 1000 // seconds
	createWithin = 2 * time.Minute            // 256 regions took 8 s on a small machine
	appearEvery  = 100 * time.Millisecond
)

// prepare makes or checks the table.
func (a *Archive) prepare(ctx context.Context, c Config) error {
	if err := a.within(ctx, func(ctx context.Context) error { return a.dialer.reach(ctx, c.ZooKeeper) }); err != nil {
		return fmt.Errorf("%w: no ZooKeeper at %s: start HBase or correct the address: %w", history.ErrUnavailable, c.ZooKeeper, err)
	}
	err := a.within(ctx, a.probe)
	if errors.Is(err, gohbase.TableNotFound) {
		err = a.create(ctx, c)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: HBase behind ZooKeeper %s does not answer%s: see that its servers run and that their names resolve here: %w",
			history.ErrUnavailable, c.ZooKeeper, a.dialer.reason(), err)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", c.Table, classify(err))
	}
	return a.within(ctx, func(ctx context.Context) error { return checkTable(ctx, c) })
}

// checkTable refuses a table that forgets sooner or later than the archive should.
// Reads and writes need no master: without one the table is taken as it is.
func checkTable(ctx context.Context, c Config) error {
	family, err := describeTable(ctx, c)
	if err != nil {
		c.Logger.Warn("table not checked, the master of hbase does not answer", "table", c.Table, "err", brief(err))
		return nil
	}
	if ttl := family["TTL"]; ttl != strconv.Itoa(life) {
		return fmt.Errorf("table %s keeps cells for %q seconds: alter '%s', {NAME => 'info', TTL => %d}", c.Table, ttl, c.Table, life)
	}
	return nil
}

func (a *Archive) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	return do(ctx)
}

// probe reads a row that no user has. It needs the region and the family.
func (a *Archive) probe(ctx context.Context) error {
	get, err := hrpc.NewGet(ctx, a.table, []byte("#"), hrpc.Families(map[string][]string{family: nil}), hrpc.SkipBatch())
	if err == nil {
		_, err = a.client.Get(get)
	}
	return err
}

// create makes the table, or waits for it when another process was quicker.
func (a *Archive) create(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	err := withAdmin(c, func(admin gohbase.AdminClient) (hrpc.Call, error) {
		call := hrpc.NewCreateTable(ctx, a.table, map[string]map[string]string{family: {
			"VERSIONS": "1", "TTL": strconv.Itoa(life), "BLOOMFILTER": "ROW", "COMPRESSION": strings.ToUpper(c.Compression),
		}}, hrpc.SplitKeys(splitKeys(c.Regions)))
		return call, admin.CreateTable(call)
	})
	if err != nil && !strings.Contains(err.Error(), "org.apache.hadoop.hbase.TableExistsException") {
		return fmt.Errorf("create: %w", err)
	}
	return a.appear(ctx)
}

// appear waits until the table can be read.
func (a *Archive) appear(ctx context.Context) error {
	for {
		err := a.probe(ctx)
		if !errors.Is(err, gohbase.TableNotFound) {
			return err
		}
		select {
		case <-time.After(appearEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
