// Package files finds the regular files under paths that a user named, in an order that
// depends on their names only. It opens none of them. Package dataset looks for text with
// it, package source for documents; it imports nothing of this module.
package files
