package wire

// LastField is the highest number of a field of a record that this version knows.
const LastField = lastField
