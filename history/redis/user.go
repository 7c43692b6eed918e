package redis

import (
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// parseUser reads a user's state. A user without a floor is cold. What others keep
// in the hash, or wrote into it by hand, is left out.
func parseUser(fields map[string]string) history.User {
	var u history.User
	for field, text := range fields {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue
		}
		switch field {
		case "floor":
			u.Warm, u.Floor = true, history.Version(n)
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
	if fields["lapsed"] != "" { // only in answers of scripts
		u.Warm, u.Floor = false, 0
	}
	return u
}

// between combines a user's state as it was before and after a read: of what was
// read, only what both say is certain.
func between(before, after history.User) history.User {
	after.Warm = after.Warm && before.Warm
	after.Floor = max(after.Floor, before.Floor)
	return after
}

// clearedType reads "cleared", for all types, or "cleared:7".
func clearedType(field string) (uint32, bool) {
	text, ok := strings.CutPrefix(field, "cleared")
	if !ok || text == "" {
		return 0, ok
	}
	text, ok = strings.CutPrefix(text, ":")
	typ, err := strconv.ParseUint(text, 10, 32)
	return uint32(typ), ok && err == nil
}

// pairs makes a map of the flat list that a script returns for a hash.
func pairs(flat []any) map[string]string {
	m := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		k, _ := flat[i].(string)
		v, _ := flat[i+1].(string)
		m[k] = v
	}
	return m
}
