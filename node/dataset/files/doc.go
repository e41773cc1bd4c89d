// Package files finds the regular files under paths that a user named, in an order that
// depends on their names only, and opens none of them: package dataset looks for text with
// it, package source for documents. Replace puts small files in their places, for packages
// shard and weights. It imports nothing of this module.
package files
