package redis

import (
	"strconv"

	"github.com/playhead/playhead/history"
)

// appendBucket appends what the keys of a bucket begin with, "{b0007}:". It has
// always eight bytes: the scripts count on it.
func appendBucket(dst []byte, b history.Bucket) []byte {
	return append(dst, '{', 'b', '0'+byte(b/1000), '0'+byte(b/100%10), '0'+byte(b/10%10), '0'+byte(b%10), '}', ':')
}

func appendList(dst []byte, b history.Bucket, uid string) []byte {
	return append(append(appendBucket(dst, b), "h:"...), uid...)
}

func appendContent(dst []byte, b history.Bucket, k history.Key) []byte {
	dst = append(append(appendBucket(dst, b), "c:"...), k.UID...)
	return appendObject(append(dst, ':'), k.Object)
}

func appendState(dst []byte, b history.Bucket, uid string) []byte {
	return append(append(appendBucket(dst, b), "u:"...), uid...)
}

// appendObject appends the text of [history.Object.String].
func appendObject(dst []byte, o history.Object) []byte {
	return strconv.AppendUint(append(append(dst, o.ID...), '_'), uint64(o.Type), 10)
}

// appendKey appends the text of [history.Key.String].
func appendKey(dst []byte, k history.Key) []byte {
	if k.IsUser() {
		return append(dst, k.String()...)
	}
	return appendObject(append(append(dst, k.UID...), '/'), k.Object)
}

// appendScore appends a version as ms + rank/4.
func appendScore(dst []byte, v history.Version) []byte {
	dst = strconv.AppendInt(dst, v.Time(), 10)
	return append(dst, [...]string{"", ".25", ".5", ".75"}[v&3]...)
}

func listKey(uid string) string { return string(appendList(nil, history.BucketOf(uid), uid)) }

func stateKey(uid string) string { return string(appendState(nil, history.BucketOf(uid), uid)) }

func contentKey(k history.Key) string {
	return string(appendContent(nil, history.BucketOf(k.UID), k))
}

// memberKey is the content of a member of a user's list.
func memberKey(uid, member string) string {
	return string(append(append(append(appendBucket(nil, history.BucketOf(uid)), "c:"...), uid...), ":"+member...))
}

func dirtyKey(b history.Bucket) string { return string(appendDirty(nil, b)) }

func appendDirty(dst []byte, b history.Bucket) []byte {
	return append(appendBucket(dst, b), "dirty"...)
}
