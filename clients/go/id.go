package rdq

import (
	"crypto/rand"
	"time"
)

// crockford is the alphabet of a ULID.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// newID makes a ULID: 48 bits of the time in milliseconds, so that ids sort by when they were made, and 80 random bits.
func newID(now time.Time) string {
	var raw [16]byte
	millis := uint64(now.UnixMilli())
	for i := range 6 {
		raw[i] = byte(millis >> (40 - 8*i))
	}
	_, _ = rand.Read(raw[6:]) // never fails: it ends the process instead
	var text [26]byte
	for i := range text {
		// The i-th group of 5 bits of 130, of which the first two are zero.
		group := 0
		for bit := i*5 - 2; bit < i*5+3; bit++ {
			group <<= 1
			if bit >= 0 {
				group |= int(raw[bit/8]>>(7-bit%8)) & 1
			}
		}
		text[i] = crockford[group]
	}
	return string(text[:])
}
