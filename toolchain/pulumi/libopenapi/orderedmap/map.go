// Package orderedmap has a map that is always empty.
package orderedmap

import "iter"

// Map has no entry.
type Map[K comparable, V any] struct{}

// New returns an empty map.
func New[K comparable, V any]() *Map[K, V] { return &Map[K, V]{} }

// Len is 0.
func Len[K comparable, V any](*Map[K, V]) int { return 0 }

// FromOldest yields nothing.
func (*Map[K, V]) FromOldest() iter.Seq2[K, V] { return func(func(K, V) bool) {} }

// KeysFromOldest yields nothing.
func (*Map[K, V]) KeysFromOldest() iter.Seq[K] { return func(func(K) bool) {} }

// Get finds nothing.
func (*Map[K, V]) Get(K) (value V, found bool) { return }

// GetOrZero finds nothing.
func (*Map[K, V]) GetOrZero(K) (value V) { return }

// Set keeps nothing.
func (*Map[K, V]) Set(K, V) {}

// Delete finds nothing.
func (*Map[K, V]) Delete(K) (value V, found bool) { return }
