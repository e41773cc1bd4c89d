// Package quant is the int8 form of float32 numbers: as tensors cross slow links, as devices
// make it so that a quarter of the bytes leaves them, and of the weights that tokens are decoded with (matrix.go).
//
// Elements of tensors come in groups, each with a scale and then a byte for each element, its value over the
// scale, rounded up or down by chance so that the mean is right (Gupta et al. 2015, "Deep Learning
// with Limited Numerical Precision", section 3). The bytes are a function of elements and noise
// alone, and the same from every device.
//
// The package is pure and imports nothing of the project; kernels, its backends and pipeline/wire
// use it.
package quant
