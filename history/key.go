// Package history is the domain of Playhead: who watched, read or heard what, how far, and when.
//
// A player reports an [Event]. The events of one [Key] fold into a [Record]. The fold is commutative and
// idempotent: reports that arrive late, twice, in any order or through several services lead to one state. The
// stores are interfaces here ([Cache], [Archive], [Publisher], [Consumer]) and adapters in the packages below.
// All adapters pass the suites of package historytest.
//
// Times are Unix milliseconds, positions and durations are milliseconds, unless stated otherwise. The package
// imports only the standard library.
package history

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// Object is a video, text or sound: an id and a numeric business type (1 video, 2 episode, 3 audio, 4 article;
// an open set). Type 0 is invalid.
type Object struct {
	ID   string
	Type uint32
}

// String returns the object's text in stores and APIs, such as "100_1": id, underscore, type. It is also the
// object's column in the archive.
func (o Object) String() string {
	return o.ID + "_" + strconv.FormatUint(uint64(o.Type), 10)
}

// ParseObject is the inverse of [Object.String]. The last underscore separates the type, since an id may
// contain underscores. It fails with [ErrInvalid].
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

// Validate returns an [ErrInvalid] for the first illegal field of o.
func (o Object) Validate() error {
	switch {
	case !legal(o.ID):
		return Invalid("object.id", wantID)
	case o.ID == "." || o.ID == ".." || o.ID == "/": // path steps in a URL
		return Invalid("object.id", "want another id than . and .. and /, which have no URL of their own")
	case o.Type == 0:
		return Invalid("object.type", "want a number from 1 to 4294967295")
	}
	return nil
}

// MaxID is the maximum length of a user or object id, in bytes.
const MaxID = 256

const wantID = "want 1 to 256 bytes of UTF-8 without control characters and U+FFFD"

// legal reports whether s is a valid id. Ids are compared by bytes, without normalization. Decoders put U+FFFD
// in place of lost text, so it could make two ids equal.
func legal(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return false
		}
	}
	return len(s) > 0 && len(s) <= MaxID
}

// Key identifies a record: a user, or a user's namespace of a [Class], and an object. A key without an object
// identifies the user's own state.
type Key struct {
	UID    string
	Object Object
}

// UserKey returns the key of a user's own state.
func UserKey(uid string) Key { return Key{UID: uid} }

// IsUser reports whether k is the key of a user's own state.
func (k Key) IsUser() bool { return k.Object == Object{} }

// Member returns the object's text in the ledger of dirty marks: "100_1", or "*" for the user's own state.
func (k Key) Member() string {
	if k.IsUser() {
		return "*"
	}
	return k.Object.String()
}

// String returns "uid/100_1" or "uid/*", with the uid escaped by [AppendUID].
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

// AppendUID appends an escaped uid of a user or a namespace. Bytes other than A-Z a-z 0-9 . _ ~ @ - and the
// namespace mark become % and two hexadecimal digits.
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

// ValidateUID returns an [ErrInvalid] unless uid is a legal user id.
func ValidateUID(uid string) error {
	if !legal(uid) {
		return Invalid("uid", wantID)
	}
	return nil
}

// Buckets is the number of user buckets. It is part of every store's format and never changes.
const Buckets = 1024

// AllBuckets returns every bucket.
func AllBuckets() []Bucket {
	all := make([]Bucket, Buckets)
	for b := range all {
		all[b] = Bucket(b) //nolint:gosec // 1,024 of them
	}
	return all
}

// Bucket is a partition of the users, 0 to [Buckets]-1.
type Bucket uint16

// BucketOf returns the bucket of a user and of the user's namespaces: the 64-bit FNV-1a hash of the uid, modulo
// [Buckets].
func BucketOf(uid string) Bucket {
	user, _ := UserOf(uid)
	return Bucket(hash(user) % Buckets)
}

// ViewingOf returns the hash of a session in completed plays.
func ViewingOf(session string) uint64 { return hash(session) }

// hash is the FNV-1a of hash/fnv without the allocation.
func hash(s string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	return h
}

// RowKey returns the user's row in the archive: the first two hexadecimal digits of the MD5 of the uid, then
// the uid. The digits spread users over the regions. A namespace has its user's digits, so its row follows the
// user's.
func RowKey(uid string) string {
	user, _ := UserOf(uid)
	sum := md5.Sum([]byte(user))
	return hex.EncodeToString(sum[:1]) + uid
}

// Version orders the writes of a key: time in milliseconds, then rank.
type Version int64

// Ranks order writes of the same millisecond.
const (
	RankProgress = 0
	RankStop     = 1
	RankDelete   = 2
)

// Ranks of decisions about "continue watching".
const (
	RankDismissed = 0
	RankOffered   = 1
)

// MaxVersion is later than the version of any event.
const MaxVersion Version = math.MaxInt64

// VersionOf returns the version of a write at ms with the given rank.
func VersionOf(ms int64, rank int) Version { return Version(ms<<2 | int64(rank)) }

// Time returns the version's time in Unix milliseconds.
func (v Version) Time() int64 { return int64(v) >> 2 }

// Score returns the version as ms + rank/4, exact in a double for the next 71,000 years.
func (v Version) Score() float64 { return float64(v) / 4 }

// Sentinel errors. Adapters wrap them; one table maps them to gRPC codes and one to HTTP.
var (
	// ErrInvalid means that the request can never succeed unchanged.
	ErrInvalid = errors.New("invalid")
	// ErrConflict means that the caller's record is outdated.
	ErrConflict = errors.New("conflict")
	// ErrUnavailable means that a store did not answer: the result is unknown, retry.
	ErrUnavailable = errors.New("unavailable")
	// ErrPermanent means that a store refuses an entry permanently.
	ErrPermanent = errors.New("refused by the store")
	// ErrLocked means that another process holds the data directory.
	ErrLocked = errors.New("in use by another process")
	// ErrGone means that what was asked for is no longer kept.
	ErrGone = errors.New("no longer kept")
	// ErrClosed means that the adapter is closed.
	ErrClosed = errors.New("closed")
)

// FieldError is an [ErrInvalid] with the field's name.
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

// namespaceMark separates user and class in the uid of a namespace: a byte that no uid contains. A namespace is
// the history of a user in one class, or in none. Stores treat a class's namespace as a separate user in the
// same bucket.
const namespaceMark = '\x01'

// NamespaceUID returns the uid of a user's namespace of a class. The namespace without a class has the user's
// own uid.
func NamespaceUID(uid, class string) string {
	if class == "" {
		return uid
	}
	return uid + string(namespaceMark) + class
}

// NamespacePrefix returns the common prefix of the uids of a user's class namespaces. No other uid has it.
func NamespacePrefix(uid string) string { return uid + string(namespaceMark) }

// UserOf returns the user and the class of a namespace, with an empty class if it has none.
func UserOf(namespace string) (uid, class string) {
	uid, class, _ = strings.Cut(namespace, string(namespaceMark))
	return uid, class
}

// logUIDs is set by LogUIDs.
var logUIDs atomic.Bool

// LogUIDs sets whether logs and errors of this process have uids instead of pseudonyms. Commands call it first.
func LogUIDs(on bool) { logUIDs.Store(on) }

// Pseudonym returns a user's name in logs and in errors, which are logged. Every process and deployment has the same
// one. An operator with a uid finds its lines; a reader of logs needs a list of uids. A class follows after a slash.
func Pseudonym(namespace string) string {
	name, class := UserOf(namespace)
	if !logUIDs.Load() {
		sum := sha256.Sum256([]byte("playhead user " + name))
		name = "u-" + hex.EncodeToString(sum[:8])
	}
	if class != "" {
		name += "/" + class
	}
	return name
}

// Private is like String with the user's [Pseudonym].
func (k Key) Private() string {
	return Pseudonym(k.UID) + "/" + k.Member()
}

// ValidateNamespace fails with [ErrInvalid] unless uid is a legal id of a user or a namespace.
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
