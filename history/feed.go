package history

import "context"

// Feed tells services what others have changed, as it happens and at most once. It
// names what has changed and does not carry it: names may repeat, come late and in any
// order, since who is told reads what there is. Its methods may be called from many
// goroutines.
type Feed interface {
	// Announce tells whoever follows the buckets of the changed users. After an error
	// some may have been told; telling them again does no harm.
	Announce(ctx context.Context, changes []Change) error
	// Interrupt tells whoever follows the buckets that something of each may have been
	// missed, as a lost connection does. After an error some may have been told.
	Interrupt(ctx context.Context, buckets []Bucket) error
	// Subscribe returns a subscription that follows no bucket yet. It has hear told what
	// comes, from several goroutines and never from within a call of the subscription's.
	// hear returns soon: what it does not take in time may be lost, and then it is told
	// so. The caller closes the subscription.
	Subscribe(hear func(Notice)) Subscription
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
	// Follow begins to follow a bucket. From when on nothing is missed is told as news.
	Follow(b Bucket)
	// Unfollow ends that. Some news of the bucket may still come.
	Unfollow(b Bucket)
	// Close ends all of it, and waits until hear is not called any more.
	Close() error
}

// Notice is what a subscription hears.
type Notice struct {
	// Changes are of users in the buckets that are followed.
	Changes []Change
	// Since are buckets of which nothing is missed from now on, until they are named
	// again. Of what was announced before something may have been: they had not been
	// followed yet, or the connection was lost.
	Joined []Bucket
}
