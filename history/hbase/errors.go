package hbase

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tsuna/gohbase"

	"github.com/playhead/playhead/history"
)

// javaPrefix begins the client's errors that are answers of HBase. There is no type
// for them: the class of the exception is in the text.
const javaPrefix = "HBase Java exception "

const (
	doNotRetry = "org.apache.hadoop.hbase.DoNotRetryIOException"
	noFamily   = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException"
)

// javaClass returns the class of the exception that HBase answered with, "" for
// any other error.
func javaClass(err error) string {
	_, rest, _ := strings.Cut(err.Error(), javaPrefix)
	class, _, _ := strings.Cut(rest, ":")
	return class
}

// permanent reports whether HBase refused for good what was sent.
func permanent(err error) bool {
	switch javaClass(err) {
	case noFamily,
		"org.apache.hadoop.hbase.exceptions.FailedSanityCheckException",
		doNotRetry:
		return true
	}
	return false
}

// mayBeOthers reports whether a call of a batch may have failed for what another one was.
func mayBeOthers(err error) bool { return err != nil && javaClass(err) == doNotRetry }

// classify wraps err in the sentinel that says whether trying again is of use.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, history.ErrUnavailable):
		return err
	case permanent(err):
		return fmt.Errorf("%w: %s", history.ErrPermanent, brief(err))
	case errors.Is(err, gohbase.ErrClientClosed):
		return fmt.Errorf("%w: %w", history.ErrUnavailable, history.ErrClosed)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %s", history.ErrUnavailable, brief(err))
}

// brief cuts the Java stack off.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n\tat ")
	return strings.ReplaceAll(text, "\n", " ")
}
