package ws

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
)

// bufferSize is what a connection has to read and to write with, in bytes. The
// server's own would be four times as much; most messages are smaller than this one,
// and larger ones pass it by.
const bufferSize = 1 << 10

// hijacker keeps hold of a connection that is taken over from the server, to be able to
// cut it while it is being closed politely.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack takes the connection over, with what was read of it too early.
func (g *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	g.conn = conn
	early, _ := rw.Peek(rw.Reader.Buffered()) // which is what there is
	w := bufio.NewWriterSize(conn, bufferSize)
	if len(early) == 0 {
		return conn, bufio.NewReadWriter(bufio.NewReaderSize(conn, bufferSize), w), nil
	}
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), conn), max(bufferSize, len(early)))
	if _, err := r.Peek(len(early)); err != nil { // which is where it will be looked for
		return nil, nil, err
	}
	return conn, bufio.NewReadWriter(r, w), nil
}
