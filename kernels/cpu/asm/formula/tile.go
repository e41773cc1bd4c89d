package formula

// DepthUnroll is how many steps of K a round of the micro-kernel's loop has.
const DepthUnroll = 4

// Offsets of the fields of cpu.tile.
const (
	TileK = 8 * iota
	TileA
	TileARow
	TileACol
	TileB
	TileInit
	TileC
	TileCRow
	TileAccumulate
	TileCount
	TileAStep
)
