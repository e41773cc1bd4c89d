package formula

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
	TileNext
	TileNextStep
	TilePacked
	TileAhead
)
