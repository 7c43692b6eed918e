package wire

// LastField is the highest known field number of a record.
const LastField = lastField
