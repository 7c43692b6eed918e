package codec

import historyv1 "github.com/playhead/playhead/proto/history/v1"

// Push is what others have changed in the user's history.
type Push struct {
	Items   []*Record `json:"items,omitempty" doc:"Records as they now stand."`
	Removed []Object  `json:"removed,omitempty" doc:"Objects that have none any more."`
	Resync  bool      `json:"resync,omitempty" doc:"More has changed than is told, or may have: read again."`
}

// NewPush returns a change of the service's.
func NewPush(c *historyv1.Change) *Push {
	p := &Push{Items: NewRecords(c.GetItems()), Resync: c.GetResync()}
	for _, o := range c.GetRemoved() {
		p.Removed = append(p.Removed, Object{ID: o.GetId(), Type: o.GetType()})
	}
	return p
}
