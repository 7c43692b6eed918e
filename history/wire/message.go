package wire

import (
	"slices"
	"strings"

	"github.com/playhead/playhead/history"
)

// MaxMessage is the usual bound of a queue's message in bytes, well under what
// brokers accept before they are configured.
const MaxMessage = 512 << 10

// Message is one message of the queue: a batch of announced keys of one partition.
type Message struct {
	Partition int
	Payload   []byte
	Keys      []history.Announcement // what the payload holds
}

// PartitionOf returns the partition of a bucket. All that is announced of a user is
// in one partition, in the order in which it was announced.
func PartitionOf(b history.Bucket, partitions int) int { return int(b) % partitions }

// Messages divides keys into one message per partition, or several where one would
// be larger than maxBytes; only a single key may exceed it. Keys of one user stand
// together. The given slice is left as it is; the messages share one copy of it.
func Messages(keys []history.Announcement, partitions, maxBytes int) []Message {
	sorted, ends := divide(keys, partitions)
	var messages []Message
	begin := 0
	for p, end := range ends {
		messages = appendMessages(messages, p, sorted[begin:end:end], maxBytes)
		begin = end
	}
	return messages
}

func appendMessages(dst []Message, partition int, keys []history.Announcement, maxBytes int) []Message {
	if len(keys) == 0 {
		return dst
	}
	payload := AppendBatch(make([]byte, 0, 32*len(keys)), keys)
	if len(payload) <= maxBytes || len(keys) == 1 {
		return append(dst, Message{Partition: partition, Payload: payload, Keys: keys})
	}
	half := len(keys) / 2
	dst = appendMessages(dst, partition, keys[:half:half], maxBytes)
	return appendMessages(dst, partition, keys[half:], maxBytes)
}

// divide returns the keys ordered by partition, bucket and user, and where each
// partition ends. It counts before it sorts,
// because what is left to sort within a bucket is next to nothing.
func divide(keys []history.Announcement, partitions int) (sorted []history.Announcement, ends []int) {
	each := (history.Buckets + partitions - 1) / partitions // buckets of a partition
	slots := make([]int, len(keys))
	next := make([]int, each*partitions+1)
	for i, k := range keys {
		b := history.BucketOf(k.Key.UID)
		slots[i] = PartitionOf(b, partitions)*each + int(b)/partitions
		next[slots[i]+1]++
	}
	for s := range next[1:] {
		next[s+1] += next[s]
	}
	sorted = make([]history.Announcement, len(keys))
	for i, k := range keys {
		sorted[next[slots[i]]] = k
		next[slots[i]]++
	}
	begin := 0
	for s, end := range next[:each*partitions] {
		slices.SortStableFunc(sorted[begin:end], byUser)
		if begin = end; s%each == each-1 {
			ends = append(ends, end)
		}
	}
	return sorted, ends
}

func byUser(a, b history.Announcement) int { return strings.Compare(a.Key.UID, b.Key.UID) }
