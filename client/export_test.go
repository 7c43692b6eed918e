package client

import (
	"encoding/json"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Wakeful is for tests of its own.
var Wakeful = wakeful

// Upload is the body of the request that carries a message.
func Upload(req *historyv1.StreamRequest) ([]byte, error) {
	return json.Marshal((&poster{Client: &Client{}}).upload(req))
}

// Reply reads the answer to a request.
func Reply(text []byte) (*historyv1.ApplyResponse, error) {
	var r reply
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	return r.result()
}
