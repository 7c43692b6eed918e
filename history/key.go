// Package history is the domain of Playhead: who watched, read or heard what, how
// far, and when.
//
// A player reports an [Event]. Events of one [Key] fold into a [Record], and the
// fold is commutative and idempotent, so that reports may arrive late, twice, in
// any order and through several services and still end in one state. The stores
// that keep records are contracts here ([Cache], [Archive], [Publisher],
// [Consumer]) and adapters in the packages below, all of which pass the suites of
// package historytest.
//
// Times are Unix milliseconds, positions and durations are milliseconds, unless a
// comment says otherwise. The package needs the standard library only.
package history

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Object is what was watched, read or heard: an id and a numeric business type
// (1 video, 2 episode, 3 audio, 4 article; an open set). Type 0 is not a type.
type Object struct {
	ID   string
	Type uint32
}

// String returns the object as stores and interfaces write it, "100_1": id,
// underscore, type. It is also the column of the object in the archive.
func (o Object) String() string {
	return o.ID + "_" + strconv.FormatUint(uint64(o.Type), 10)
}

// ParseObject is the inverse of [Object.String]. The type follows the last
// underscore, because an id may hold underscores too. It fails with [ErrInvalid].
func ParseObject(s string) (Object, error) {
	i := strings.LastIndexByte(s, '_')
	if i < 0 {
		return Object{}, Invalid("object", "want id_type")
	}
	typ, err := strconv.ParseUint(s[i+1:], 10, 32)
	if err != nil || s[i+1:] != strconv.FormatUint(typ, 10) {
		return Object{}, Invalid("object.type", "want a number from 1 to 4294967295")
	}
	o := Object{ID: s[:i], Type: uint32(typ)}
	return o, o.Validate()
}

// Validate reports the first field of o that is not legal, as [ErrInvalid].
func (o Object) Validate() error {
	switch {
	case !legal(o.ID):
		return Invalid("object.id", wantID)
	case o.ID == "." || o.ID == ".." || o.ID == "/": // in a URL they are taken for steps
		return Invalid("object.id", "want another id than . and .. and /, which have no URL of their own")
	case o.Type == 0:
		return Invalid("object.type", "want a number from 1 to 4294967295")
	}
	return nil
}

// MaxID is the length of the longest id of a user or an object, in bytes.
const MaxID = 256

const wantID = "want 1 to 256 bytes of UTF-8 without control characters and U+FFFD"

// legal reports whether s may be an id. Ids are compared by their bytes, without normalization. Decoders put U+FFFD where
// text was lost: with it two ids could become one.
func legal(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return false
		}
	}
	return len(s) > 0 && len(s) <= MaxID
}

// Key names one record: a user, or a user's namespace of a [Class], and an object. The key without an object
// names the user's own state.
type Key struct {
	UID    string
	Object Object
}

// UserKey is the key of a user's own state.
func UserKey(uid string) Key { return Key{UID: uid} }

// IsUser reports whether k names a user's own state.
func (k Key) IsUser() bool { return k.Object == Object{} }

// Member returns the object as the ledger of dirty marks writes it: "100_1", or
// "*" for the user's own state.
func (k Key) Member() string {
	if k.IsUser() {
		return "*"
	}
	return k.Object.String()
}

// String returns "uid/100_1" or "uid/*", the uid as [AppendUID] writes it.
func (k Key) String() string {
	return string(append(append(AppendUID(nil, k.UID), '/'), k.Member()...))
}

// ParseKey is the inverse of [Key.String]. It fails with [ErrInvalid].
func ParseKey(s string) (Key, error) {
	text, member, ok := strings.Cut(s, "/")
	if !ok {
		return Key{}, Invalid("key", "want uid/object")
	}
	uid, err := ParseUID(text)
	if err != nil {
		return Key{}, err
	}
	if member == "*" {
		return UserKey(uid), nil
	}
	o, err := ParseObject(member)
	return Key{UID: uid, Object: o}, err
}

// AppendUID appends the uid of a user or a namespace as keys have it where something follows: each byte other than
// A-Z a-z 0-9 . _ ~ @ - and the mark of a namespace as % and two hexadecimal digits.
func AppendUID(dst []byte, uid string) []byte {
	for i := range len(uid) {
		if c := uid[i]; plain(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return dst
}

const hexDigits = "0123456789ABCDEF"

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == namespaceMark || strings.IndexByte("._~@-", c) >= 0
}

// ParseUID is the inverse of [AppendUID]. It fails with [ErrInvalid].
func ParseUID(text string) (uid string, err error) {
	uid, err = url.PathUnescape(text)
	if err != nil || string(AppendUID(nil, uid)) != text {
		return "", Invalid("uid", "want each byte other than A-Z a-z 0-9 . _ ~ @ - as % and two hexadecimal digits")
	}
	return uid, ValidateNamespace(uid)
}

// ValidateUID reports whether uid is a legal user id, as [ErrInvalid] if not.
func ValidateUID(uid string) error {
	if !legal(uid) {
		return Invalid("uid", wantID)
	}
	return nil
}

// Buckets is how many buckets users are divided into. It is part of the format of
// every store and never changes.
const Buckets = 1024

// AllBuckets returns every bucket.
func AllBuckets() []Bucket {
	all := make([]Bucket, Buckets)
	for b := range all {
		all[b] = Bucket(b) //nolint:gosec // 1,024 of them
	}
	return all
}

// Bucket is a share of the users, 0 to [Buckets]-1.
type Bucket uint16

// BucketOf returns the bucket of a user, which is also that of the user's namespaces: the 64-bit FNV-1a hash of the uid,
// modulo [Buckets].
func BucketOf(uid string) Bucket {
	user, _ := UserOf(uid)
	return Bucket(hash(user) % Buckets)
}

// ViewingOf returns the hash that stands for a session in completed plays.
func ViewingOf(session string) uint64 { return hash(session) }

// hash is FNV-1a, as hash/fnv has it, without an object for each call.
func hash(s string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	return h
}

// RowKey returns the user's row in the archive: the first two hexadecimal digits
// of the MD5 of the uid, then the uid. The digits spread users over the regions. A user's namespaces stand behind the
// user: their digits are the user's.
func RowKey(uid string) string {
	user, _ := UserOf(uid)
	sum := md5.Sum([]byte(user))
	return hex.EncodeToString(sum[:1]) + uid
}

// Version orders the writes of one key: time in milliseconds, then rank.
type Version int64

// Ranks order writes of one millisecond.
const (
	RankProgress = 0
	RankStop     = 1
	RankDelete   = 2
)

// Ranks of decisions about what is offered to go on with.
const (
	RankDismissed = 0
	RankOffered   = 1
)

// MaxVersion is later than every version of an event.
const MaxVersion Version = math.MaxInt64

// VersionOf returns the version of a write at ms with the given rank.
func VersionOf(ms int64, rank int) Version { return Version(ms<<2 | int64(rank)) }

// Time returns the version's time in Unix milliseconds.
func (v Version) Time() int64 { return int64(v) >> 2 }

// Score returns the version as ms + rank/4, which a double holds exactly for the
// next 71,000 years.
func (v Version) Score() float64 { return float64(v) / 4 }

// Sentinel errors. Adapters wrap them; one table maps them to gRPC codes and one
// to HTTP.
var (
	// ErrInvalid means that the request can never succeed as it is.
	ErrInvalid = errors.New("invalid")
	// ErrConflict means that a record is not the one that the caller knows.
	ErrConflict = errors.New("conflict")
	// ErrUnavailable means that a store did not answer: nothing is known, try again.
	ErrUnavailable = errors.New("unavailable")
	// ErrPermanent means that a store refused one entry for good.
	ErrPermanent = errors.New("refused by the store")
	// ErrLocked means that another process holds the data directory.
	ErrLocked = errors.New("in use by another process")
	// ErrClosed means that the adapter was closed.
	ErrClosed = errors.New("closed")
)

// FieldError is an [ErrInvalid] that names the field.
type FieldError struct {
	Field  string
	Reason string
}

// Invalid returns a [FieldError].
func Invalid(field, reason string) error { return &FieldError{Field: field, Reason: reason} }

// Error returns "field: reason".
func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// Unwrap returns [ErrInvalid].
func (e *FieldError) Unwrap() error { return ErrInvalid }

// A namespace is the part of a user's history that is of one class, or of no class. The stores treat the namespace of a class as
// a user of its own, in the same bucket as the user. Its uid is the user's uid, a byte that no uid has, and the class's name.
const namespaceMark = '\x01'

// NamespaceUID returns the uid of a user's namespace of a class. The namespace of no class has the user's own uid.
func NamespaceUID(uid, class string) string {
	if class == "" {
		return uid
	}
	return uid + string(namespaceMark) + class
}

// NamespacePrefix returns the beginning that the uids of a user's namespaces of classes have, and no other uid.
func NamespacePrefix(uid string) string { return uid + string(namespaceMark) }

// UserOf returns the user and the class of a namespace. The class is empty for the namespace of no class.
func UserOf(namespace string) (uid, class string) {
	uid, class, _ = strings.Cut(namespace, string(namespaceMark))
	return uid, class
}

// ValidateNamespace fails with [ErrInvalid] unless uid is a legal id of a user or of a user's namespace.
func ValidateNamespace(uid string) error {
	user, class := UserOf(uid)
	if err := ValidateUID(user); err != nil {
		return err
	}
	if len(user) < len(uid) && !legalClass(class) {
		return Invalid("uid", "want the name of a class after its mark")
	}
	return nil
}

const maxClassName = 32

func legalClass(name string) bool {
	for i := range len(name) {
		c := name[i]
		if ('a' > c || c > 'z') && (i == 0 || c != '-' && ('0' > c || c > '9')) {
			return false
		}
	}
	return name != "" && len(name) <= maxClassName
}
