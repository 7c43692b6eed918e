package run

// LimitMemory is limitMemory.
var LimitMemory = limitMemory

// MemoryOf is memory.
var MemoryOf = memory
