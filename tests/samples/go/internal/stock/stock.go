// Package stock counts what is there.
package stock

// Stock is a number of things by name.
type Stock map[string]int

// New is empty.
func New() Stock {
	return Stock{}
}

// Add puts one more there.
func (stock Stock) Add(name string) {
	stock[name]++
}
