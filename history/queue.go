package history

import "context"

// Publisher announces dirty keys to the jobs. Its methods may be called from many
// goroutines.
type Publisher interface {
	// Publish sends the keys in one message per partition, or several where one
	// would be too large. It returns the keys of which it does not know that they
	// arrived, with the reason; sending those again does no harm.
	Publish(ctx context.Context, keys []Dirty) (unsent []Dirty, err error)
}

// Consumer hands announced keys to one job.
type Consumer interface {
	// Consume joins the group of jobs and calls handle once per generation, until
	// ctx is done. The context of handle ends with the generation; handle then
	// returns soon. Consume returns nil when ctx is done, or what handle returned
	// while its generation lasted.
	Consume(ctx context.Context, handle func(context.Context, Claim) error) error
}

// Claim is what one job owns during one generation.
type Claim interface {
	// Buckets returns the buckets whose keys this job alone receives.
	Buckets() []Bucket
	// Fetch waits for the next messages and returns all that are at hand, up to a
	// bound. Deliveries come in order; what is not committed comes again in a later
	// generation.
	Fetch(ctx context.Context) (Delivery, error)
	// Commit says that d and everything fetched before it is dealt with. It fails
	// when the generation is over.
	Commit(ctx context.Context, d Delivery) error
}

// Delivery is one or more messages of the queue.
type Delivery struct {
	Dirty []Dirty
	// Poison are messages that cannot be decoded.
	Poison   []Poison
	Messages int
	Bytes    int
	// Offsets are the adapter's: the next offset by partition.
	Offsets map[int]int64
}

// Poison is a message that no job will ever understand.
type Poison struct {
	Payload   []byte
	Partition int
	Offset    int64
	Err       error
}

// Dead is what could not be archived: a key that the archive refused for good, with
// its record, or a message that could not be decoded.
type Dead struct {
	Key     Key     // zero for a message
	Record  *Record // nil for a message and for a user's own state
	Payload []byte  // of a message
	Origin  string  // "archive", or partition and offset of the message
	Reason  string
	At      int64 // Unix milliseconds
}

// DeadLetters keeps what could not be archived until somebody has mended the cause.
type DeadLetters interface {
	// Bury stores letters durably. After an error some may be stored.
	Bury(ctx context.Context, letters []Dead) error
}
