//go:build !linux

package image

import (
	"fmt"
	"os"
)

// Enter does nothing: every program can open drivers here.
func Enter(...string) error { return nil }

// Executable is the path of this program.
func Executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("image: find this program's file: %w", err)
	}
	return path, nil
}
