package kafka

import "context"

// Ends are the ends of a topic's partitions at a time.
type Ends = ends

// FollowOnce is a round of [Counts.Follow].
func (c *Counts) FollowOnce(ctx context.Context, past []Ends) []Ends { return c.follow(ctx, past) }
