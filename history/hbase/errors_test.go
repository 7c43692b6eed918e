package hbase_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tsuna/gohbase"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

// java returns the client's error for an exception of HBase.
func java(class, text string) error { return exception{class, text} }

type exception struct{ class, text string }

func (e exception) Error() string {
	return fmt.Sprintf("HBase Java exception %s:\n%s: %s\n\tat org.apache.hadoop.A.b(A.java:1)\n\tat c.D.e(D.java:2)\n", e.class, e.class, e.text)
}

func TestClassify(t *testing.T) {
	const pkg = "org.apache.hadoop.hbase."
	for _, test := range []struct {
		err  error
		want error
	}{
		{java(pkg+"regionserver.NoSuchColumnFamilyException", "no x"), history.ErrPermanent},
		{java(pkg+"DoNotRetryIOException", "exceeds limit of 10485760 bytes"), history.ErrPermanent},
		{java(pkg+"exceptions.FailedSanityCheckException", "timestamp"), history.ErrPermanent},
		{java(pkg+"RegionTooBusyException", "org.apache.hadoop.hbase.DoNotRetryIOException in the text"), history.ErrUnavailable},
		{java(pkg+"NotServingRegionException", "moved"), history.ErrUnavailable},
		{gohbase.TableNotFound, history.ErrUnavailable},
		{gohbase.NotExecutedError, history.ErrUnavailable},
		{gohbase.ErrClientClosed, history.ErrClosed},
		{gohbase.ErrClientClosed, history.ErrUnavailable},
		{context.DeadlineExceeded, history.ErrUnavailable},
		{context.DeadlineExceeded, context.DeadlineExceeded},
		{context.Canceled, context.Canceled},
	} {
		got := hbase.Classify(test.err)
		if !errors.Is(got, test.want) {
			t.Errorf("%v: got %v, want it to be %v", test.err, got, test.want)
		}
		if errors.Is(got, history.ErrPermanent) && errors.Is(got, history.ErrUnavailable) {
			t.Errorf("%v: got %v, which is both", test.err, got)
		}
		if strings.ContainsAny(got.Error(), "\n\t") {
			t.Errorf("%v: got %q, want one line", test.err, got)
		}
		if again := hbase.Classify(got); !errors.Is(again, test.want) {
			t.Errorf("%v: twice: got %v, want it to be %v", test.err, again, test.want)
		}
	}
	if got := hbase.Classify(nil); got != nil {
		t.Errorf("nil: got %v", got)
	}
}
