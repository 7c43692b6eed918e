// Package pipeline runs the services as real processes between real engines, and
// compares what the engines hold in the end with a plain merge of what was sent.
package pipeline
