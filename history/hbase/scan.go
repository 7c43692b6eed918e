package hbase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/tsuna/gohbase/filter"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
)

const (
	// usersOfScan is the number of rows of one scan: a scanner lives for a minute between two reads.
	usersOfScan = 1000
	// scanWithin bounds one scan.
	scanWithin = time.Minute
	// behindDigits is behind every row key: these begin with hexadecimal digits.
	behindDigits = "g"
)

// Users yields the uids of all users and namespaces with a row after the given one, in the order of their rows. A user
// who comes while it runs may be missing. It ends at the first error, such as [history.ErrUnavailable].
func (a *Archive) Users(ctx context.Context, from string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for more := true; more; {
			some, err := a.usersFrom(ctx, from)
			if err != nil {
				yield("", fmt.Errorf("scan users: %w", err))
				return
			}
			for _, uid := range some {
				if !yield(uid, nil) {
					return
				}
				from = uid
			}
			more = len(some) == usersOfScan
		}
	}
}

func (a *Archive) usersFrom(ctx context.Context, from string) (some []string, err error) {
	if ctx.Err() != nil {
		return nil, unavailable(ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, scanWithin)
	defer cancel()
	first := ""
	if from != "" {
		first = history.RowKey(from) + "\x00"
	}
	scan, err := hrpc.NewScanRange(ctx, a.table, []byte(first), []byte(behindDigits), hrpc.Filters(filter.NewFirstKeyOnlyFilter()), hrpc.NumberOfRows(usersOfScan))
	if err != nil {
		return nil, err
	}
	rows := a.client.Scan(scan)
	defer func() { _ = rows.Close() }()
	for len(some) < usersOfScan {
		r, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return some, nil
		}
		if err != nil {
			return nil, classify(err)
		}
		if len(r.Cells) > 0 && len(r.Cells[0].Row) > digitsEnd {
			some = append(some, string(r.Cells[0].Row[digitsEnd:]))
		}
	}
	return some, nil
}
