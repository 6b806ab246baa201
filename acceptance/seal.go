package acceptance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// A segment carries the SHA-256 of its own bytes, taken with the digits of the
// checksum as zeros. The place is the value of the last metadata entry
// "exacta.checksum": after the key come the bytes 0x18 0x40 of Parquet's compact
// Thrift (a string field of 64 bytes), then 64 hexadecimal digits. Any damage is
// found before the file is parsed: Parquet readers believe the lengths that a
// file states, and a flipped bit can ask for gigabytes.
const (
	keyChecksum = "exacta.checksum"
	sealMark    = keyChecksum + "\x18\x40"
	sealDigits  = 2 * sha256.Size
)

// unsealed is the checksum's value while it is being computed.
var unsealed = string(bytes.Repeat([]byte{'0'}, sealDigits))

// digits returns the place of the checksum in a segment, or nil.
func digits(file []byte) []byte {
	i := bytes.LastIndex(file, []byte(sealMark))
	if i < 0 || len(file)-i-len(sealMark) < sealDigits {
		return nil
	}
	return file[i+len(sealMark):][:sealDigits]
}

// seal puts the checksum into a finished file whose checksum is unsealed.
func seal(file []byte) error {
	place := digits(file)
	if string(place) != unsealed {
		return errors.New("the Parquet library does not lay out metadata as expected; no place for the checksum")
	}
	sum := sha256.Sum256(file)
	hex.Encode(place, sum[:])
	return nil
}

// checkSeal compares a segment with its checksum. It changes file and changes it
// back.
func checkSeal(file []byte) error {
	const magic = "PAR1"
	if len(file) < 2*len(magic) || string(file[:len(magic)]) != magic {
		return fmt.Errorf("not a Parquet file (%d bytes)", len(file))
	}
	if string(file[len(file)-len(magic):]) != magic {
		return fmt.Errorf("truncated: no Parquet footer at its end (%d bytes)", len(file))
	}
	place := digits(file)
	if place == nil {
		return fmt.Errorf("not a file of exacta records: no %s in its metadata", keyChecksum)
	}
	stated := string(place)
	copy(place, unsealed)
	sum := sha256.Sum256(file)
	copy(place, stated)
	if hex.EncodeToString(sum[:]) != stated {
		return errors.New("damaged: its bytes do not match its checksum; restore the file or remove the run")
	}
	return nil
}
