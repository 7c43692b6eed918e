package run

// LimitMemory is limitMemory.
var LimitMemory = limitMemory
