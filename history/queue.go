package history

import (
	"context"
)

// Announcement is a key whose record may be newer than in the archive.
type Announcement struct {
	Key Key
	// Record is set if the queue carries the content too.
	Record *Record
	// Trace is the traceparent of the key's last sampled report, usually empty.
	Trace string
}

// Traces returns the traceparents of announcements.
func Traces(keys []Announcement) (parents []string) {
	for i := range keys {
		if keys[i].Trace != "" {
			parents = append(parents, keys[i].Trace)
		}
	}
	return parents
}

// Publisher announces dirty keys to the jobs. Its methods are safe for concurrent use.
type Publisher interface {
	// Publish sends the keys in one message per partition, or several if one would be too large. It returns the
	// keys without a confirmed delivery, with the cause; a retry is harmless. If ctx is done it sends nothing.
	Publish(ctx context.Context, keys []Announcement) (unsent []Announcement, err error)
}

// Consumer delivers announced keys to one job.
type Consumer interface {
	// Consume joins the group of jobs and calls handle once per generation until ctx is done. The context of
	// handle ends with the generation; handle must then return soon. Consume returns nil once ctx is done, or
	// handle's error if its generation was still current.
	Consume(ctx context.Context, handle func(context.Context, Assignment) error) error
}

// Assignment is a job's buckets during one generation.
type Assignment interface {
	// Buckets returns the buckets that only this job receives.
	Buckets() []Bucket
	// Fetch waits for messages and returns all available ones, up to a bound, in order. Uncommitted messages
	// come again in a later generation. An undecodable message is poison and part of its delivery. Fetch fails
	// once handle has returned.
	Fetch(ctx context.Context) (Delivery, error)
	// Commit marks d and everything fetched before it as processed. It works until handle returns, even if
	// handle's context is done. It fails after that, and once another member has ended the generation.
	Commit(ctx context.Context, d Delivery) error
}

// Delivery is one or more messages of the queue.
type Delivery struct {
	Keys []Announcement
	// Poison are the undecodable messages.
	Poison []Poison
	// Traces are the traceparents of traced messages; of a queue in memory, those of its keys.
	Traces   []string
	Messages int
	Bytes    int
	// Offsets are the next offsets by partition, for the adapter.
	Offsets map[int]int64
	// CommitMetadata is a short text to store with the commit.
	CommitMetadata string
}

// Poison is an undecodable message.
type Poison struct {
	Payload   []byte
	Partition int
	Offset    int64
	Err       error
}

// Dead is a dead letter: a key that the archive refused permanently, a damaged cell about to be overwritten, or
// an undecodable message.
type Dead struct {
	Key     Key     // zero for a message.
	Record  *Record // nil for a message, for a user's own state, and if only the cell is known.
	User    User    // clear marks and pause of a user's own state.
	Payload []byte  // of a message.
	Cell    []byte  // of a damaged cell, see [DamageError].
	Origin  string  // "archive", or partition and offset of the message.
	Reason  string
	At      int64 // Unix milliseconds.
}

// Feed notifies services of changes by others, immediately and at most once. A notice names the change without
// its content: notices may repeat, arrive late and in any order, since the receiver reads the current content.
// A feed that knows its followers may have a method Followed(Bucket) bool: if false, earlier changes need no
// announcement. Its methods are safe for concurrent use.
type Feed interface {
	// Announce notifies all subscriptions to the buckets of the changed users. After an error some may have been
	// notified; a repeat is harmless.
	Announce(ctx context.Context, changes []Change) error
	// Interrupt reports to all subscriptions to the buckets that notices may be missing, as after a lost
	// connection. After an error some may have been notified.
	Interrupt(ctx context.Context, buckets []Bucket) error
	// Subscribe returns a subscription without buckets. It calls handle for each notice, from several goroutines
	// and never from within the subscription's methods. handle must return soon: a delayed notice may be
	// dropped, and a later notice then says so. The caller closes the subscription.
	Subscribe(handle func(Notice)) Subscription
}

// Change names a changed key. A key without an object stands for the user's own state and all records.
type Change struct {
	Key Key
	// Origin is the connection that made the change, 0 if there is no single one.
	Origin uint64
}

// Subscription follows buckets.
type Subscription interface {
	// Follow adds a bucket. A notice reports when delivery begins.
	Follow(b Bucket)
	// Unfollow removes a bucket. Some of its notices may still arrive.
	Unfollow(b Bucket)
	// Close ends the subscription and waits for running calls of handle.
	Close() error
}

// Notice is a message from a subscription.
type Notice struct {
	// Changes are of users in followed buckets.
	Changes []Change
	// Joined are buckets with complete delivery from now on, until they are listed again. Earlier notices may be
	// missing: the bucket was not followed yet, or the connection was lost.
	Joined []Bucket
}
