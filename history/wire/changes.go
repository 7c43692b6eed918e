package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// AppendChanges appends encoded names of changes to dst. Those of one user and origin
// that stand together share both.
func AppendChanges(dst []byte, changes []history.Change) []byte {
	var m historyv1.Changes
	for i, c := range changes {
		if i == 0 || changes[i-1].Key.UID != c.Key.UID || changes[i-1].Origin != c.Origin || changes[i-1].Key.IsUser() != c.Key.IsUser() {
			m.Users = append(m.Users, &historyv1.ChangedUser{Uid: c.Key.UID, Origin: c.Origin})
		}
		if o := c.Key.Object; !c.Key.IsUser() {
			u := m.Users[len(m.Users)-1]
			u.Objects = append(u.Objects, &historyv1.Object{Id: o.ID, Type: o.Type})
		}
	}
	dst, err := proto.MarshalOptions{}.MarshalAppend(dst, &m)
	if err != nil { // only for invalid UTF-8, which validation has refused in the keys
		panic(fmt.Sprintf("encode changes: %v", err))
	}
	return dst
}

// Changes decodes names of changes. It fails with [ErrCorrupt], also when a key in it is
// not legal.
func Changes(b []byte) (changes []history.Change, err error) {
	var m historyv1.Changes
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("changes of %d bytes: %w: %w", len(b), ErrCorrupt, err)
	}
	for _, u := range m.GetUsers() {
		if changes, err = appendChanges(changes, u); err != nil {
			return nil, fmt.Errorf("changes of %d bytes: %w: %w", len(b), ErrCorrupt, err)
		}
	}
	return changes, nil
}

func appendChanges(dst []history.Change, u *historyv1.ChangedUser) ([]history.Change, error) {
	if err := history.ValidateUID(u.GetUid()); err != nil {
		return nil, err
	}
	if len(u.GetObjects()) == 0 {
		return append(dst, history.Change{Key: history.UserKey(u.GetUid()), Origin: u.GetOrigin()}), nil
	}
	for _, o := range u.GetObjects() {
		k := history.Key{UID: u.GetUid(), Object: history.Object{ID: o.GetId(), Type: o.GetType()}}
		if err := k.Object.Validate(); err != nil {
			return nil, err
		}
		dst = append(dst, history.Change{Key: k, Origin: u.GetOrigin()})
	}
	return dst, nil
}
