package history

import (
	"context"
	"time"
)

// Announcement is a key whose record may be newer than the archive.
type Announcement struct {
	Key Key
	// Record is set where the queue is to hold the content too.
	Record *Record
}

// Publisher announces dirty keys to the jobs. Its methods may be called from many
// goroutines.
type Publisher interface {
	// Publish sends the keys in one message per partition, or several where one
	// would be too large. It returns the keys of which it does not know that they
	// arrived, with the reason; sending those again does no harm. Under a ctx that is done
	// nothing is sent.
	Publish(ctx context.Context, keys []Announcement) (unsent []Announcement, err error)
}

// Consumer hands announced keys to one job.
type Consumer interface {
	// Consume joins the group of jobs and calls handle once per generation, until
	// ctx is done. The context of handle ends with the generation; handle then
	// returns soon. Consume returns nil when ctx is done, or what handle returned
	// while its generation lasted.
	Consume(ctx context.Context, handle func(context.Context, Assignment) error) error
}

// Assignment is what one job owns during one generation.
type Assignment interface {
	// Buckets returns the buckets whose keys this job alone receives.
	Buckets() []Bucket
	// Fetch waits for the next messages and returns all that are at hand, up to a
	// bound. Deliveries come in order; what is not committed comes again in a later
	// generation. A message that cannot be decoded is poison, and part of its delivery.
	// Once handle has returned, it fails.
	Fetch(ctx context.Context) (Delivery, error)
	// Commit says that d and everything fetched before it is dealt with. It works until handle
	// returns, also once the context of handle is done. After that, and in a generation that another member has ended, it fails.
	Commit(ctx context.Context, d Delivery) error
}

// Rereader is a queue that still has what was delivered and committed. Its methods may
// be called from many goroutines.
type Rereader interface {
	// Reread hands to use, one call after the other, what was announced of the given
	// buckets at or after a time and until now, that of each user in order; the time is
	// that of the publishers' clocks, and a little of what is older may come too. Nothing
	// changes for those who consume. Messages that cannot be decoded are passed over: they
	// were delivered as poison. It returns the first error of use, or wraps
	// [ErrUnavailable] when it could not read everything; then it has read what it could.
	Reread(ctx context.Context, buckets []Bucket, since time.Time, use func(context.Context, []Announcement) error) error
	// CommitMetadata returns what was kept with the last commit of each part of the queue of which anything was committed. It wraps
	// [ErrUnavailable].
	CommitMetadata(ctx context.Context) ([]string, error)
}

// Delivery is one or more messages of the queue.
type Delivery struct {
	Keys []Announcement
	// Poison are messages that cannot be decoded.
	Poison   []Poison
	Messages int
	Bytes    int
	// Offsets are the adapter's: the next offset by partition.
	Offsets map[int]int64
	// CommitMetadata is a short text that whoever commits wants to be kept with the commit, see [Rereader].
	CommitMetadata string
}

// Poison is a message that no job will ever understand.
type Poison struct {
	Payload   []byte
	Partition int
	Offset    int64
	Err       error
}

// Dead is what could not be archived, or read from the archive: a key that the archive
// refused for good, with its record; a key whose cell is damaged, with the bytes of the
// cell, before another takes its place; or a message that could not be decoded.
type Dead struct {
	Key     Key     // zero for a message
	Record  *Record // nil for a message, for a user's own state, and where only the cell is known
	User    User    // a user's own clear marks and pause
	Payload []byte  // of a message
	Cell    []byte  // of a damaged cell, see [DamageError]
	Origin  string  // "archive", or partition and offset of the message
	Reason  string
	At      int64 // Unix milliseconds
}

// DeadLetters keeps what could not be archived until its cause is mended.
type DeadLetters interface {
	// Add stores letters durably. After an error some may be stored.
	Add(ctx context.Context, letters []Dead) error
}

// Feed tells services what others have changed, as it happens and at most once. It
// names what has changed and does not carry it: names may repeat, come late and in any
// order, since a service that is told reads the present content. A feed that knows who follows what
// also has Followed(Bucket) bool: where it says no, nothing need be announced of a change that was
// made before. Its methods may be called from many goroutines.
type Feed interface {
	// Announce tells all subscriptions that follow the buckets of the changed users. After an error
	// some may have been told; telling them again does no harm.
	Announce(ctx context.Context, changes []Change) error
	// Interrupt tells all subscriptions that follow the buckets that something of each may have been
	// missed, as a lost connection does. After an error some may have been told.
	Interrupt(ctx context.Context, buckets []Bucket) error
	// Subscribe returns a subscription that follows no bucket yet. It calls handle with
	// each notice, from several goroutines and never from within a call of the subscription's.
	// handle returns soon: a notice that it does not take in time may be lost, and then another
	// notice says so. The caller closes the subscription.
	Subscribe(handle func(Notice)) Subscription
}

// Change names what has changed of a user's history: the user's own state and all of
// the records for a key without an object.
type Change struct {
	Key Key
	// Origin is the only connection whose doing it is, 0 when there is no such one.
	Origin uint64
}

// Subscription follows buckets.
type Subscription interface {
	// Follow begins to follow a bucket. A notice says from when on nothing is missed.
	Follow(b Bucket)
	// Unfollow ends that. Some notices of the bucket may still come.
	Unfollow(b Bucket)
	// Close ends all of it, and waits until handle is not called any more.
	Close() error
}

// Notice is what a subscription passes on.
type Notice struct {
	// Changes are of users in the buckets that are followed.
	Changes []Change
	// Joined are buckets of which nothing is missed from now on, until they are named
	// again. Of what was announced before something may have been: they had not been
	// followed yet, or the connection was lost.
	Joined []Bucket
}
