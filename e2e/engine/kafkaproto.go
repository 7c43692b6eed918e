package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// kafkaReady asks for the metadata: an open port is no proof, a broker in the
// answer is, for it is listed only once the controller lets it serve.
func kafkaReady(ctx context.Context, n Node) error {
	conn, err := dial(ctx, n.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(metadataRequest()); err != nil {
		return err
	}
	brokers, err := brokerCount(conn)
	if err == nil && brokers == 0 {
		err = errors.New("kafka lists no broker yet")
	}
	return err
}

// metadataRequest is request 3, version 1, for no topics. Its layout is in
// the Kafka protocol guide: length, key, version, correlation, client, topics.
func metadataRequest() []byte {
	body := []byte{0, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// brokerCount reads the head of a metadata response: length, correlation,
// number of brokers.
func brokerCount(r io.Reader) (uint32, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, fmt.Errorf("read kafka metadata: %w", err)
	}
	if id := binary.BigEndian.Uint32(head[4:]); id != 1 {
		return 0, fmt.Errorf("kafka answers request %d, not 1", id)
	}
	return binary.BigEndian.Uint32(head[8:]), nil
}
