package redis

import (
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// appendBucket appends the key prefix of a bucket, "{b0007}:". Scripts rely on its eight bytes.
func appendBucket(dst []byte, b history.Bucket) []byte {
	return append(dst, '{', 'b', '0'+byte(b/1000), '0'+byte(b/100%10), '0'+byte(b/10%10), '0'+byte(b%10), '}', ':')
}

func appendList(dst []byte, b history.Bucket, uid string) []byte {
	return history.AppendUID(append(appendBucket(dst, b), "h:"...), uid)
}

func appendContent(dst []byte, b history.Bucket, k history.Key) []byte {
	dst = history.AppendUID(append(appendBucket(dst, b), "c:"...), k.UID)
	return appendObject(append(dst, ':'), k.Object)
}

func appendState(dst []byte, b history.Bucket, uid string) []byte {
	return history.AppendUID(append(appendBucket(dst, b), "u:"...), uid)
}

// appendObject appends [history.Object.String].
func appendObject(dst []byte, o history.Object) []byte {
	return strconv.AppendUint(append(append(dst, o.ID...), '_'), uint64(o.Type), 10)
}

// appendKey appends [history.Key.String].
func appendKey(dst []byte, k history.Key) []byte {
	dst = append(history.AppendUID(dst, k.UID), '/')
	if k.IsUser() {
		return append(dst, k.Member()...)
	}
	return appendObject(dst, k.Object)
}

// appendScore appends a version as ms + rank/4.
func appendScore(dst []byte, v history.Version) []byte {
	dst = strconv.AppendInt(dst, v.Time(), 10)
	return append(dst, [...]string{"", ".25", ".5", ".75"}[v&3]...)
}

func listKey(uid string) string { return string(appendList(nil, history.BucketOf(uid), uid)) }

func appendLog(dst []byte, b history.Bucket, uid string) []byte {
	return history.AppendUID(append(appendBucket(dst, b), "l:"...), uid)
}

func logKey(uid string) string { return string(appendLog(nil, history.BucketOf(uid), uid)) }

func stateKey(uid string) string { return string(appendState(nil, history.BucketOf(uid), uid)) }

func contentKey(k history.Key) string {
	return string(appendContent(nil, history.BucketOf(k.UID), k))
}

// memberKey returns the content key of a list member.
func memberKey(uid, member string) string {
	return string(append(history.AppendUID(append(appendBucket(nil, history.BucketOf(uid)), "c:"...), uid), ":"+member...))
}

func dirtyKey(b history.Bucket) string { return string(appendDirty(nil, b)) }

func removedKey(b history.Bucket) string { return string(append(appendBucket(nil, b), "removed"...)) }

func longKey(b history.Bucket) string { return string(append(appendBucket(nil, b), "long"...)) }

func appendDirty(dst []byte, b history.Bucket) []byte {
	return append(appendBucket(dst, b), "dirty"...)
}

// parseUser parses a user's state. Without a low watermark the user is cold. Other fields are ignored.
func parseUser(fields map[string]string) history.User {
	var u history.User
	u.Pause.Earlier = history.Pauses(fields["pauses"])
	for field, text := range fields {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue
		}
		switch field {
		case "low_watermark":
			u.Warm, u.LowWatermark = true, history.Version(n)
		case "cut":
			u.CutTime = n
		case "rev":
			u.Revision = uint64(n)
		case "paused":
			u.Pause.Since = n
		case "resumed":
			u.Pause.Until = n
		}
		if typ, ok := clearedType(field); ok {
			if u.Cleared == nil {
				u.Cleared = map[uint32]int64{}
			}
			u.Cleared[typ] = n
		}
	}
	if fields["lapsed"] != "" { // set only in scripts' replies
		u.Warm, u.LowWatermark = false, 0
	}
	return u
}

// certain combines a user's state before and after a read into what holds for both.
func certain(before, after history.User) history.User {
	after.Warm = after.Warm && before.Warm
	after.LowWatermark = max(after.LowWatermark, before.LowWatermark)
	return after
}

// clearedType parses "cleared", for all types, or "cleared:7".
func clearedType(field string) (uint32, bool) {
	text, ok := strings.CutPrefix(field, "cleared")
	if !ok || text == "" {
		return 0, ok
	}
	text, ok = strings.CutPrefix(text, ":")
	typ, err := strconv.ParseUint(text, 10, 32)
	return uint32(typ), ok && err == nil
}

// pairs converts a script's flat list of fields and values to a map.
func pairs(flat []any) map[string]string {
	m := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		k, _ := flat[i].(string)
		v, _ := flat[i+1].(string)
		m[k] = v
	}
	return m
}

// Each bucket has a channel on the shard of its keys, so messages stay within that shard.
const channelEnd = "feed"

func appendChannel(dst []byte, b history.Bucket) []byte {
	return append(appendBucket(dst, b), channelEnd...)
}

func channel(b history.Bucket) string { return string(appendChannel(nil, b)) }

// bucketOf is the inverse of channel.
func bucketOf(channel string) (b history.Bucket, ok bool) {
	digits, ok := strings.CutSuffix(channel, "}:"+channelEnd)
	digits, ok2 := strings.CutPrefix(digits, "{b")
	for _, d := range []byte(digits) {
		b = b*10 + history.Bucket(d-'0')
	}
	return b, ok && ok2 && b < history.Buckets
}
