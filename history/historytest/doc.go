// Package historytest holds the contract suites of package history: what every
// adapter of a store or queue passes, whatever it is made of.
package historytest
